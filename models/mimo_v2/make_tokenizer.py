"""The tokenizer and chat template of the tiny random checkpoint: byte-level BPE from a table, ChatML turns.

| ids | tokens |
|---|---|
| 0 to 2 | end of text, start and end of a turn |
| 3 to 6 | reasoning and tool calls: tags that vLLM's `mimo` parsers look for |
| 7 to 262 | bytes |
| 263 to 511 | merged pairs, then unused |
"""

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

VOCAB_SIZE = 512
END_OF_TEXT, TURN_START, TURN_END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
CONTROL_TOKENS = (END_OF_TEXT, TURN_START, TURN_END)
TAGS = ("<think>", "</think>", "<tool_call>", "</tool_call>")  # text to a client, one token to the model
# Each pair becomes one token; earlier pairs first, so a pair may hold an earlier one's result. Ġ is a space.
MERGES: tuple[tuple[str, str], ...] = tuple(
    (first, second)
    for first, second in map(str.split, (
        "t h", "h e", "Ġ t", "Ġt he", "i n", "e r", "a n", "o n", "r e", "e d", "n d", "o r", "e n", "i s",
        "i t", "a t", "o u", "l l", "in g", "Ġ a", "Ġ s", "Ġ w", "Ġ o", "Ġ f", "Ġ b", "Ġ i", "Ġ c", "Ġ h",
        "Ġ m", "Ġ p", "Ġ d", "Ġa nd", "Ġt o", "Ġo f", "Ġi n", "Ġi s", "Ġh e", "Ġw or", "Ġwor l", "Ġworl d",
        "Ġhe ll", "Ġhell o", "u s", "us er", "a s", "as s", "ass is", "assis t", "assist an", "assistan t",
    ))
)  # fmt: skip

# Arguments are verbatim strings between tags, as the `mimo` tool parser reads them. Earlier turns' reasoning
# is dropped. Without `enable_thinking` the answer starts after an empty block of reasoning.
CHAT_TEMPLATE = """\
{%- macro argument(value) -%}
    {{- value if value is string else value | tojson -}}
{%- endmacro -%}
{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}
        {{- messages[0].content + '\\n\\n' }}
    {%- endif %}
    {{- '# Tools\\n\\nYou may call these functions:\\n<tools>' }}
    {%- for tool in tools %}
        {{- '\\n' + tool | tojson }}
    {%- endfor %}
    {{- '\\n</tools>\\n\\nCall a function like this:\\n<tool_call>\\n<function=name>\\n' }}
    {{- '<parameter=argument>value</parameter>\\n</function>\\n</tool_call><|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'system' %}
        {%- if not (tools and loop.first) %}
            {{- '<|im_start|>system\\n' + message.content + '<|im_end|>\\n' }}
        {%- endif %}
    {%- elif message.role == 'user' %}
        {{- '<|im_start|>user\\n' + message.content + '<|im_end|>\\n' }}
    {%- elif message.role == 'assistant' %}
        {{- '<|im_start|>assistant\\n' + ((message.content or '').split('</think>') | last).lstrip('\\n') }}
        {%- for call in message.tool_calls or [] %}
            {{- '\\n<tool_call>\\n<function=' + call.function.name + '>\\n' }}
            {%- for name, value in call.function.arguments.items() %}
                {{- '<parameter=' + name + '>' + argument(value) + '</parameter>\\n' }}
            {%- endfor %}
            {{- '</function>\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == 'tool' %}
        {{- '<|im_start|>tool\\n' + message.content + '<|im_end|>\\n' }}
    {%- else %}
        {{- raise_exception('Unknown role: ' + message.role) }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {{- '<think>\\n' if enable_thinking | default(false) else '<think>\\n\\n</think>\\n\\n' }}
{%- endif %}
"""


def make_tokenizer() -> Tokenizer:
    """Build it; the same every time."""
    tokens = [*CONTROL_TOKENS, *TAGS, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    tokens += ["".join(pair) for pair in MERGES]
    tokens += [f"<|unused_{i}|>" for i in range(len(tokens), VOCAB_SIZE)]
    vocabulary = {token: i for i, token in enumerate(tokens)}
    assert len(vocabulary) == VOCAB_SIZE
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=list(MERGES)))
    tokenizer.add_special_tokens(
        [AddedToken(token, special=True, normalized=False) for token in CONTROL_TOKENS]
    )
    tokenizer.add_tokens([AddedToken(tag, special=False, normalized=False) for tag in TAGS])
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer
