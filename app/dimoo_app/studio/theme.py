"""How the studio looks, and what it does not do: no fonts or scripts from elsewhere, nothing counted or sent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gradio as gr
from fastapi import FastAPI

from dimoo_app.studio import samples

LARGEST_UPLOAD = "32mb"

THEME = gr.themes.Base(
    primary_hue=gr.themes.colors.teal,
    neutral_hue=gr.themes.colors.slate,
    radius_size=gr.themes.sizes.radius_md,
    spacing_size=gr.themes.sizes.spacing_md,
    font=["Inter", "ui-sans-serif", "system-ui", "sans-serif"],
    font_mono=["ui-monospace", "Consolas", "monospace"],
).set(
    body_background_fill="*neutral_50",
    body_background_fill_dark="*neutral_950",
    block_border_width="1px",
    block_shadow="none",
    block_shadow_dark="none",
    button_primary_background_fill="*primary_600",
    button_primary_background_fill_hover="*primary_700",
    button_primary_background_fill_dark="*primary_600",
    button_primary_background_fill_hover_dark="*primary_500",
    button_primary_text_color="white",
    button_secondary_background_fill_dark="*neutral_700",
    button_secondary_background_fill_hover_dark="*neutral_600",
    button_secondary_text_color_dark="*neutral_100",
    slider_color="*primary_500",
)

CSS = """
/* split, asked, made, later: a tab's two columns. On a phone what is made follows the button, settings come last. */
footer .divider { display: none; }
.gradio-container { width: 100% !important; max-width: 1240px !important; margin: 0 auto !important; }
#head { display: flex; align-items: baseline; gap: .75rem; flex-wrap: wrap; padding: .25rem 0 0; }
#head h1 { font-size: 1.25rem; font-weight: 650; margin: 0; letter-spacing: -.01em; }
#head .model { font-size: .85rem; opacity: .7; }
.quiet { font-size: .85rem; opacity: .75; }
.live .stage { display: grid; gap: .6rem; grid-template-columns: repeat(auto-fit, minmax(9rem, 1fr));
  justify-items: center; }
.live figure { margin: 0; width: 100%; max-width: 22rem; }
.live figure img { width: 100%; display: block; border-radius: .4rem; border: 1px solid var(--border-color-primary); }
.live blockquote { margin: 0; padding: .6rem .75rem; min-height: 3rem; border-radius: .4rem; white-space: pre-wrap;
  overflow-wrap: anywhere; border: 1px solid var(--border-color-primary); background: var(--block-background-fill); }
.live figcaption { font-size: .8rem; opacity: .8; padding: .3rem .1rem 0; overflow-wrap: anywhere; }
.small-pixels img, .small-pixels canvas { image-rendering: pixelated; }
.small-pixels .image-frame img { object-fit: contain !important; }
.small-pixels .grid-wrap img, .small-pixels .thumbnail-item img { width: 100%; height: 100%; object-fit: contain; }
.small-pixels .preview img { object-fit: contain; width: 100%; height: 100%; }
.empty { min-height: 13rem; display: grid; place-content: center; text-align: center; gap: .3rem; opacity: .75;
  border: 1px dashed var(--border-color-primary); border-radius: .6rem; padding: 1.5rem; }
.empty b { font-size: 1rem; font-weight: 600; }
.meter { display: grid; gap: .35rem; margin: 0 0 .6rem; font-size: .85rem; }
.meter .rail { height: .4rem; border-radius: .2rem; background: var(--border-color-primary); overflow: hidden; }
.meter .rail i { display: block; height: 100%; background: var(--color-accent); border-radius: .2rem; }
.meter .words { display: flex; justify-content: space-between; gap: 1rem; font-variant-numeric: tabular-nums; }
table.facts { width: 100%; border-collapse: collapse; font-size: .85rem; border: 0 !important; margin: 0 !important; }
table.facts tr { background: none !important; border: 0 !important; }
table.facts td { padding: .25rem .4rem .25rem 0 !important; vertical-align: top; border: 0 !important;
  border-bottom: 1px solid var(--border-color-primary) !important; overflow-wrap: anywhere; }
table.facts td:first-child { opacity: .65; white-space: nowrap; width: 9rem; }
.seeds { align-items: center; padding-right: .75rem; gap: .75rem; background: var(--block-background-fill); }
.seeds button { align-self: center; border-radius: var(--radius-sm) !important; }
.results .grid-container, .samples .grid-container, .given .grid-container { grid-template-rows: none !important;
  grid-auto-rows: auto !important; }
.results .gallery-item, .samples .gallery-item, .given .gallery-item { height: auto !important; }
.given .grid-container { grid-template-columns: repeat(auto-fill, minmax(6rem, 11rem)) !important; }
.results .grid-container { grid-template-columns: repeat(auto-fit, minmax(6rem, 12rem)) !important;
  height: auto !important; justify-content: center; }
.results .grid-container:has(> :only-child) { grid-template-columns: minmax(6rem, 22rem) !important; }
.results .thumbnail-item { height: auto !important; aspect-ratio: 1; }
.samples .caption-label { display: none; }
.samples .grid-container { grid-template-columns: repeat(auto-fill, 4.6rem) !important; height: auto !important; }
.samples .thumbnail-item { height: auto !important; aspect-ratio: 1; }
.samples .grid-wrap, .results .grid-wrap { min-height: 0 !important; height: auto !important; }
.results .gallery-container:has(.preview) { min-height: 25rem; }
.samples { min-height: 0 !important; }
@media (max-width: 640px) {
  .gradio-container, .gradio-container main { padding: .25rem !important; }
  #tabs .tab-container button { padding: 0 .3rem !important; font-size: .85rem; }
  .empty { min-height: 8rem; }
  .live figure { max-width: none; }
  table.facts td:first-child { width: 6.5rem; }
  .split { flex-direction: column !important; flex-wrap: nowrap !important; }
  .split > * { flex: none !important; width: 100% !important; }
  .split > .asked { display: contents !important; }
  .split > .made { order: 1; }
  .split .later { order: 2; }
}
"""


def dress() -> dict[str, Any]:
    """What `launch` and `mount_gradio_app` get alike. Of all files only the examples are readable from outside."""
    return {
        "theme": THEME, "css": CSS, "footer_links": ["settings"], "run_history": False, "enable_monitoring": False,
        "allowed_paths": [str(samples.FOLDER)], "max_file_size": LARGEST_UPLOAD,
        "ssr_mode": False, "show_error": True,
    }  # fmt: skip


def mount(app: FastAPI, page: gr.Blocks, logins: Sequence[tuple[str, str]] | None = None) -> FastAPI:
    """The studio at / of the API's app; routes that were there before come first."""
    return gr.mount_gradio_app(app, page, path="/", auth=list(logins) if logins else None, **dress())
