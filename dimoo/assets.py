"""Files that ship with DiMOO, found the same way in a wheel and in a checkout."""

from __future__ import annotations

from pathlib import Path

PACKAGED = Path(__file__).parent / "assets"  # in a wheel: data inside the package
CHECKOUT = Path(__file__).parents[1] / "assets"  # in a checkout or an editable install


def asset(name: str) -> Path:
    """Path of the asset `name`, for example `dimoo-tiny` or `dimoo-tiny/config.json`.

    Raises ValueError listing what exists.
    """
    roots = _roots()
    for root in roots:
        path = root / name
        if path.exists() and path.resolve().is_relative_to(root.resolve()):
            return path
    known = sorted({path.name for root in roots for path in root.iterdir()})
    raise ValueError(f"no asset named {name!r}; there is: {', '.join(known) or 'none'}")


def _roots() -> list[Path]:
    # A folder called assets next to an installed package belongs to somebody else.
    in_checkout = (CHECKOUT.parent / "pyproject.toml").exists()
    return [root for root, ours in ((PACKAGED, True), (CHECKOUT, in_checkout)) if ours and root.is_dir()]
