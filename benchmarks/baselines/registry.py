"""The named rivals by their options: one line each."""

from benchmarks.baselines.fairbatching import FairBatching
from benchmarks.baselines.new_token_ratio import NewTokenRatio
from benchmarks.baselines.options import (
    FairBatchingOptions,
    NewTokenRatioOptions,
    PastFutureOptions,
    QoserveOptions,
    RefinerOptions,
    RivalOptions,
    SarathiOptions,
    SlosServeOptions,
)
from benchmarks.baselines.past_future import PastFuture
from benchmarks.baselines.qoserve import Qoserve
from benchmarks.baselines.refiner import Refiner
from benchmarks.baselines.rival import Known, Rival
from benchmarks.baselines.sarathi import Sarathi
from benchmarks.baselines.slos_serve import SlosServe


def make_rival(options: RivalOptions, known: Known) -> Rival:
    """The rival that these constants are of, with its own fresh state."""
    match options:
        case SarathiOptions():
            return Sarathi()
        case RefinerOptions():
            return Refiner(options, known)
        case QoserveOptions():
            return Qoserve(options, known)
        case FairBatchingOptions():
            return FairBatching(options, known)
        case SlosServeOptions():
            return SlosServe(options, known)
        case PastFutureOptions():
            return PastFuture(options)
        case NewTokenRatioOptions():
            return NewTokenRatio(options)
