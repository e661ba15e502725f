"""A variant is an object, a table key, `module:Name` or `file.py:Name`; anything else is told what exists."""

import collections
import sys

import pytest

from dimoo.resolve import resolve

TABLE = {"none": object(), "max-logit": object(), "prefix": object()}
MINE = """
from dataclasses import dataclass

@dataclass
class Mine:
    k: int = 3

_hidden = 1
"""


@pytest.fixture
def mine(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(MINE)
    yield path
    for name in [name for name in sys.modules if name.startswith("mine_")]:
        del sys.modules[name]


@pytest.mark.parametrize("given", [object(), 3, None, dict])
def test_an_object_passes_through(given):
    assert resolve(given, TABLE, "cache") is given


def test_a_key_names_its_entry():
    for key, value in TABLE.items():
        assert resolve(key, TABLE, "cache") is value


def test_a_module_gives_its_attribute():
    assert resolve("collections:OrderedDict", TABLE, "cache") is collections.OrderedDict
    assert resolve("collections.abc:Mapping", TABLE, "cache") is collections.abc.Mapping


def test_a_file_gives_its_attribute_and_is_loaded_once(mine, monkeypatch):
    Mine = resolve(f"{mine}:Mine", TABLE, "cache")
    assert Mine().k == 3
    monkeypatch.chdir(mine.parent)
    assert resolve("mine.py:Mine", TABLE, "cache") is Mine
    assert "mine" not in sys.modules  # a user's file never hides a module of the same name


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("max-logt", ["unknown cache 'max-logt'", "did you mean 'max-logit'?", "max-logit, none, prefix"]),
        ("", ["unknown cache ''", "max-logit, none, prefix"]),
        ("mine.py", ["unknown cache 'mine.py'", "file.py:Name"]),
        ("mine.py:", ["unknown cache 'mine.py:'", "file.py:Name"]),
        ("collections:OrderdDict", ["collections has no 'OrderdDict'", "did you mean 'OrderedDict'?"]),
        ("no_such_module:Name", ["no module named 'no_such_module'", "file.py:Name"]),
        ("collections.no_such:Name", ["no module named 'collections.no_such'"]),
        (".relative:Name", ["'.relative' is neither a module nor a .py file"]),
        ("folder/mine:Name", ["'folder/mine' is neither a module nor a .py file"]),
    ],
)
def test_the_error_lists_what_exists(given, says):
    with pytest.raises(ValueError) as error:
        resolve(given, TABLE, "cache")
    for words in says:
        assert words in str(error.value)


def test_a_wrong_file_or_name_in_it_is_told_what_exists(mine):
    with pytest.raises(ValueError, match="did you mean 'Mine'") as error:
        resolve(f"{mine}:Mien", TABLE, "cache")
    assert "_hidden" not in str(error.value)
    with pytest.raises(ValueError, match=r"no file .*did you mean 'mine\.py'"):
        resolve(f"{mine.with_name('mines.py')}:Mine", TABLE, "cache")
    with pytest.raises(ValueError, match="no file"):
        resolve(f"{mine.parent / 'absent' / 'mine.py'}:Mine", TABLE, "cache")


def test_an_empty_table_says_so():
    with pytest.raises(ValueError, match="there is: nothing"):
        resolve("x", {}, "reward")


def test_an_error_inside_the_code_comes_through(tmp_path, monkeypatch):
    (tmp_path / "broken_variant.py").write_text("import no_such_dependency\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="no_such_dependency"):
        resolve("broken_variant:Name", TABLE, "cache")
    for _ in range(2):  # a half-loaded file is not kept
        with pytest.raises(ModuleNotFoundError, match="no_such_dependency"):
            resolve(f"{tmp_path / 'broken_variant.py'}:Name", TABLE, "cache")
