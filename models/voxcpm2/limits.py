"""Ranges and defaults of a request's parameters, with their reasons. Free of torch."""

MIN_STEPS = 2  # one Euler step is the zero-velocity start alone: the patch would be pure noise
MAX_STEPS = 100  # beyond some 30 nothing is heard; the bound sizes the schedule tables
DEFAULT_STEPS = 10
DEFAULT_CFG = 2.0
MAX_CFG = 10.0  # far above what stays intelligible; a bound that keeps the solver finite
MAX_TEMPERATURE = 2.0  # the factor on the starting noise; the flow was trained at 1
DEFAULT_MIN_PATCHES = 2  # the stop flag of patch i counts only when i is greater
MAX_PATCHES = 2000  # 320 s of speech, the reference's own limit
PATCHES_PER_TEXT_TOKEN = 6  # the reference's bound on runaway speech ...
EXTRA_PATCHES = 10  # ... is 6 patches a text token, and 10
CONTEXT_PATCHES = 3  # last prompt patches that warm the decoder when speech continues a prompt
MAX_SEED = 2**63 - 1  # a torch generator's seed, non-negative
