"""Imports run one way, no folder of ours gets in the way of other libraries, and files stay short."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# import name: where it lives, and what of ours it may import
PACKAGES = {
    "tokenizers_vq": ("tokenizers_vq", set()),
    "dimoo_kernels": ("kernels/dimoo_kernels", set()),
    "dimoo": ("dimoo", {"tokenizers_vq", "dimoo_kernels"}),
    "dimoo_app": ("app/dimoo_app", {"dimoo", "tokenizers_vq"}),
    "dimoo_training": ("training/dimoo_training", {"dimoo", "tokenizers_vq"}),
}
FOLDERS = ["dimoo", "tokenizers_vq", "kernels", "app", "training", "tests"]
NAMESPACES = {"kernels", "app", "training"}
OPTIONAL = {"gradio", "triton", "open_clip"}
MAX_LINES = 350


def sources(folder):
    return sorted((ROOT / folder).rglob("*.py"))


def imports(path):
    """(line, top-level module) of every absolute import in the file, also inside functions."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name.split(".")[0]) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.lineno, node.module.split(".")[0]


def offenders(paths, forbidden):
    return [
        f"{path.relative_to(ROOT)}:{line} imports {module}"
        for path in paths
        for line, module in imports(path)
        if module in forbidden
    ]


@pytest.mark.parametrize("package", PACKAGES)
def test_imports_run_one_way(package):
    folder, allowed = PACKAGES[package]
    assert sources(folder), f"{folder} has no Python file"
    found = offenders(sources(folder), set(PACKAGES) - allowed - {package})
    assert not found, (
        f"{package} may import {sorted(allowed) or 'nothing of ours'}. The app and the training are reached "
        f"by name, as in resolve('dimoo_app.studio:main', ...), and kernels through dimoo.ops: {found}"
    )


def test_only_ops_knows_the_kernels():
    outside = [path for path in sources("dimoo") if path != ROOT / "dimoo" / "ops.py"]
    found = offenders(outside, {"dimoo_kernels"})
    assert not found, f"only dimoo/ops.py chooses between a kernel and plain torch: {found}"


@pytest.mark.parametrize("package", ["dimoo", "tokenizers_vq"])
def test_the_core_needs_no_extra(package):
    found = offenders(sources(package), OPTIONAL)
    assert not found, f"the core must work without the extras; use importlib.util.find_spec to look: {found}"


def test_nobody_imports_a_folder_by_its_generic_name():
    found = offenders([path for folder in FOLDERS for path in sources(folder)], NAMESPACES)
    assert not found, f"say dimoo_kernels, dimoo_app or dimoo_training: {found}"


@pytest.mark.parametrize("folder", sorted(NAMESPACES))
def test_generic_folders_are_not_packages(folder):
    assert not (ROOT / folder / "__init__.py").exists(), (
        f"{folder}/__init__.py turns the folder into a package called {folder!r}. transformers looks for one "
        "called 'kernels', runs it, reads its version and imports names from it: every model import breaks "
        "as soon as the real kernels library is installed. 'app' and 'training' collide in other hosts. "
        f"Code belongs in {folder}/dimoo_{folder}/."
    )


@pytest.mark.parametrize("folder", FOLDERS)
def test_files_are_short(folder):
    lines = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in sources(folder)}
    long = {str(path.relative_to(ROOT)): count for path, count in lines.items() if count > MAX_LINES}
    assert not long, f"longer than {MAX_LINES} lines, split by noun: {long}"


PROBE = """
import sys
from transformers import PreTrainedModel
from diffusers import DiffusionPipeline
for name in ("kernels", "app", "training"):
    for loaded, module in sorted(sys.modules.items()):
        if (loaded == name or loaded.startswith(name + ".")) and getattr(module, "__file__", None):
            print(loaded, module.__file__)
"""
FAKE_KERNELS = """
__version__ = "0.18.2"
class Anything:
    def __init__(self, *args, **kwargs): pass
    def __call__(self, given=None, *args, **kwargs): return given
def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return Anything
"""


def from_the_root(code, *path):
    """Output of `code` in a Python started at the root, which puts all our folders on the import path."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path)), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_transformers_and_diffusers_run_nothing_of_ours():
    ours = [line for line in from_the_root(PROBE) if str(ROOT) in line and ".venv" not in line]
    assert not ours, f"importing transformers ran our code: {ours}"


def test_the_real_kernels_library_wins_over_our_folder(tmp_path):
    # Stands in for an installed distribution `kernels` of a version that transformers accepts.
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "__init__.py").write_text(FAKE_KERNELS)
    info = tmp_path / "kernels-0.18.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: kernels\nVersion: 0.18.2\n")
    found = [line for line in from_the_root(PROBE, tmp_path) if line.startswith("kernels ")]
    assert found == [f"kernels {tmp_path / 'kernels' / '__init__.py'}"]
