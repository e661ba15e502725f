"""Image tokenizers: pixels to a grid of codes and back."""

from tokenizers_vq.base import ImageTokenizer
from tokenizers_vq.toy import ToyImageTokenizer
from tokenizers_vq.vq import VQImageTokenizer

TOKENIZERS = {"vq": VQImageTokenizer, "toy": ToyImageTokenizer}

__all__ = ["TOKENIZERS", "ImageTokenizer", "ToyImageTokenizer", "VQImageTokenizer"]
