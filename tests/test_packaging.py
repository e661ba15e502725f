"""The wheel and the sdist hold what they should, and the installed wheel draws a picture on its own."""

import email
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest
from PIL import Image

from dimoo import __version__
from dimoo.assets import asset

ROOT = Path(__file__).parents[1]
PACKAGES = {
    "dimoo": ROOT / "dimoo",
    "tokenizers_vq": ROOT / "tokenizers_vq",
    "dimoo_kernels": ROOT / "kernels" / "dimoo_kernels",
    "dimoo_app": ROOT / "app" / "dimoo_app",
    "dimoo_training": ROOT / "training" / "dimoo_training",
}
EXTRAS = {"app", "train", "kernels", "eval", "ray", "quant", "dev"}
BIN, EXE = ("Scripts", ".exe") if os.name == "nt" else ("bin", "")

pytestmark = pytest.mark.slow


def run(*command, cwd, **env):
    env = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYTHONHOME")} | env
    done = subprocess.run([str(part) for part in command], cwd=cwd, env=env, capture_output=True, text=True)
    assert done.returncode == 0, f"{command} failed:\n{done.stdout}\n{done.stderr}"
    return done.stdout.strip()


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Folder with the sdist made from the checkout and the wheel made from that sdist."""
    out = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", out, ROOT, cwd=out)
    return out


@pytest.fixture(scope="module")
def wheel(built):
    (path,) = built.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """A fresh environment with the wheel, which borrows the heavy dependencies of this one."""
    home = tmp_path_factory.mktemp("installed") / "venv"
    venv.EnvBuilder(with_pip=True).create(home)
    python = home / BIN / f"python{EXE}"
    run(python, "-m", "pip", "install", "--no-deps", "--no-index", wheel, cwd=home)
    site = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=home))
    # After the install, or pip would see our own dimoo. A .pth inside a borrowed folder is not followed, so
    # the editable install stays out of sight.
    borrowed = dict.fromkeys([sysconfig.get_path("purelib"), sysconfig.get_path("platlib")])
    (site / "borrowed.pth").write_text("\n".join(borrowed))
    return home


def names_in(wheel):
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_wheel_holds_five_packages_and_nothing_else(wheel):
    names = names_in(wheel)
    assert {name.split("/")[0] for name in names} == {*PACKAGES, f"dimoo-{__version__}.dist-info"}
    for package, folder in PACKAGES.items():
        assert f"{package}/__init__.py" in names
        for path in folder.rglob("*.py"):
            assert f"{package}/{path.relative_to(folder).as_posix()}" in names
    assert f"dimoo-{__version__}.dist-info/licenses/LICENSE" in names
    assert not [name for name in names if "__pycache__" in name or name.endswith(".pyc")]


def test_wheel_holds_the_embedded_model(wheel):
    names = names_in(wheel)
    assert "dimoo/assets/dimoo-tiny/config.json" in names
    model = asset("dimoo-tiny")
    for path in model.rglob("*"):
        if path.is_file():
            assert f"dimoo/assets/dimoo-tiny/{path.relative_to(model).as_posix()}" in names


def test_wheel_metadata(wheel):
    with zipfile.ZipFile(wheel) as archive:
        meta = email.message_from_bytes(archive.read(f"dimoo-{__version__}.dist-info/METADATA"))
        scripts = archive.read(f"dimoo-{__version__}.dist-info/entry_points.txt").decode()
    assert (meta["Name"], meta["Version"], meta["License-Expression"]) == ("dimoo", __version__, "Apache-2.0")
    assert set(meta.get_all("Provides-Extra")) == EXTRAS
    assert "dimoo = dimoo.cli:main" in scripts
    pinned = [need for need in meta.get_all("Requires-Dist") if re.search(r"[=~]=\s*\d", need.split(";")[0])]
    assert not pinned, f"a library has ranges; tested versions go to constraints.txt: {pinned}"


def test_sdist_holds_tests_and_assets(built):
    (path,) = built.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = ["pyproject.toml", "LICENSE", "Makefile", "constraints.txt", "tests/test_packaging.py"]
    assert not [name for name in wanted if name not in names]
    assert "assets/dimoo-tiny/config.json" in names
    assert not [name for name in names if name.startswith((".venv", "out/", "runs/"))]


def test_the_checkout_finds_its_assets():
    assert asset("dimoo-tiny") == ROOT / "assets" / "dimoo-tiny"


@pytest.mark.parametrize("name", ["dimoo-tinny", "..", "../dimoo", "/"])
def test_an_unknown_asset_lists_what_exists(name):
    with pytest.raises(ValueError, match=r"there is: .*dimoo-tiny"):
        asset(name)


def test_installed_wheel_is_what_runs(installed, tmp_path):
    code = "import dimoo, dimoo_app, dimoo_kernels, dimoo_training, tokenizers_vq\nprint(dimoo.__file__)"
    python = installed / BIN / f"python{EXE}"
    assert Path(run(python, "-c", code, cwd=tmp_path)).is_relative_to(installed)
    code = "from dimoo.assets import asset; print(asset('dimoo-tiny'))"
    found = Path(run(python, "-c", code, cwd=tmp_path))
    assert found.is_relative_to(installed) and found.parts[-3:] == ("dimoo", "assets", "dimoo-tiny")


def test_installed_wheel_draws_a_picture(installed, tmp_path):
    dimoo = installed / BIN / f"dimoo{EXE}"
    run(dimoo, "generate", "a red circle", "--out", "X.png", "--steps", "4", cwd=tmp_path, HF_HUB_OFFLINE="1")
    with Image.open(tmp_path / "X.png") as picture:
        assert picture.format == "PNG" and min(picture.size) > 0
        picture.load()
