"""Tidegate's nucleus: reads whether to leave optional content out, and says how long answers took."""

from .asgi import TidegateNucleus
from .wsgi import TidegateWsgiNucleus

__all__ = ["TidegateNucleus", "TidegateWsgiNucleus"]
