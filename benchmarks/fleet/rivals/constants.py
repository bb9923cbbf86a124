"""The constants that rivals may be given, with what is allowed; the defaults are the rivals'."""

from typing import Literal

from pydantic import Field

from controller.config import Block


class DynamoThroughput(Block):
    interval_s: float | None = Field(None, gt=0)
    engine: float | None = Field(None, gt=0)
    predictor: Literal["constant", "trend"] | None = None


class DynamoLoad(Block):
    ttft_s: float | None = Field(None, gt=0)
    itl_s: float | None = Field(None, gt=0)
    sensitivity: float | None = Field(None, gt=0)
    interval_s: float | None = Field(None, gt=0)


class DynamoBoth(DynamoLoad):
    throughput_s: float | None = Field(None, gt=0)
    engine: float | None = Field(None, gt=0)
    predictor: Literal["constant", "trend"] | None = None
