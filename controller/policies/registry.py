"""The policies by name."""

from controller.policies import adaptive, paper, static
from controller.policies.base import Decide

POLICIES: dict[str, Decide] = {
    "static": static.decide,
    "paper": paper.decide,
    "adaptive": adaptive.decide,
}
