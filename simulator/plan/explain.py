"""The arithmetic of a plan, line by line."""

from collections import Counter
from collections.abc import Iterator

from replicas.profiles.profile_file import HBM_EFFICIENCY
from serve_app.planning.cards import GIB
from serve_app.planning.roofline import DEVIATIONS, FLOPS_EFFICIENCY, WEIGHT_EFFICIENCY
from serve_app.planning.shape import Attention
from simulator.plan.answer import Plan, kv_read_bytes
from simulator.plan.carried import REACHED
from simulator.plan.setting import Setting


def explain(plan: Plan) -> Iterator[str]:
    """One line for each step, in the order of a memory budget."""
    own = plan.setting
    yield from _memory(own)
    yield from _kv(own)
    yield from _steps(own)
    yield from _capacity(plan)
    if plan.fluid_per_s:
        yield from _choices(plan)


def _memory(own: Setting) -> Iterator[str]:
    shape, budget, weights = own.shape, own.budget, own.budget.weights
    bits = shape.quantization
    dtypes = f"{shape.dtype}, 8 x {shape.dtype_bytes} bits"
    if bits.method:
        dtypes = (
            f"{bits.method}: {bits.linear_bits or 8 * shape.dtype_bytes:.4g} bits a linear weight"
        )
        if bits.expert_bits != bits.linear_bits:
            dtypes += f", {bits.expert_bits:.4g} of an expert"
        dtypes += f", {shape.dtype} for the rest"
    yield f"memory of one of {own.tp} x {own.gpu}:"
    yield f"  parameters           {shape.params:,} ({shape.active_params:,} a token); {dtypes}"
    parts = (
        ("embeddings, output", weights.embeddings),
        ("attention, states", weights.mixers),
        ("dense MLPs", weights.dense),
        ("experts", weights.experts),
        ("norms, routers, encoder", weights.other),
    )
    for name, size in parts:
        if size:
            yield f"    {name:<23} {size / GIB:8.3f} GiB"
    yield f"  weights              {weights.total / GIB:8.3f} GiB"
    yield (
        f"  usable               {budget.usable / GIB:8.3f} GiB ="
        f" {budget.total / GIB:.1f} GiB x {budget.utilization:g} (gpu_memory_utilization)"
    )
    seqs, tokens = own.engine
    yield (
        f"  activations          {budget.activations / GIB:8.3f} GiB: a step of {tokens:,} tokens,"
        f" logits of {seqs:,} requests"
    )
    yield f"  context, CUDA graphs {budget.outside / GIB:8.3f} GiB"
    yield (
        f"  left for KV          {budget.kv / GIB:8.3f} GiB ="
        f" {budget.usable / GIB:.3f} - {weights.total / GIB:.3f}"
        f" - {budget.activations / GIB:.3f} - {budget.outside / GIB:.3f}"
    )


def _kv(own: Setting) -> Iterator[str]:
    layout = own.layout
    kinds: Counter[tuple[str, int, int, int]] = Counter()
    for one in own.shape.layers:
        if isinstance(one.mixer, Attention):
            elements = one.mixer.kv_elements(own.tp)
            kinds[one.mixer.kind, one.mixer.window, elements, one.mixer.kv_heads] += 1
    yield "KV cache of one card:"
    for (kind, window, elements, heads), n in kinds.items():
        what = "one latent vector" if kind == "latent" else f"K and V of {heads} heads"
        upto = f", of at most {window:,} tokens" if window else ""
        yield (
            f"  {kind:<8} {n:>3} layers x {elements:,} elements ({what}, over {own.tp} cards)"
            f" x {layout.kv_bytes} B = {n * elements * layout.kv_bytes:,} B a token{upto}"
        )
    if layout.state_bytes:
        yield f"  states   {layout.state_bytes:,} B a sequence, as vLLM pads them to a block"
    sizes = ", ".join(f"{g.layers} {g.kind}" for g in layout.groups)
    yield (f"  a block: {layout.block_bytes:,} B; groups of layers with a table of blocks: {sizes}")
    blocks = int(own.budget.kv // layout.block_bytes)
    yield (
        f"  {blocks:,} blocks; vLLM's log line: {own.capacity_tokens:,} tokens, for sequences of"
        f" {own.max_model_len:,}"
    )
    which = "of the profile's KV memory" if own.own_kv else "held at once"
    yield f"  requests of {own.lengths.mean_held:,.0f} tokens {which}: {own.slots:,.1f}"


def _steps(own: Setting) -> Iterator[str]:
    profile, held = own.profile, own.lengths.mean_held
    batch = max(min(int(own.slots), 64), 1)
    yield f"steps: {profile.name} ({profile.source})"
    if not own.measured:
        line = own.roofline
        yield (
            f"  one token reads weights {line.read_s(1) * 1e3:.2f} ms at {WEIGHT_EFFICIENCY:g} of"
            f" {own.card.hbm_gb_per_s:,.0f} GB/s, multiplies {line.multiply_s(1) * 1e6:.1f} us at"
            f" {FLOPS_EFFICIENCY:g} of the dense rate;"
            f" all-reduces {line.all_reduce_s(1) * 1e3:.2f} ms"
        )
        yield (
            f"  KV of one request: {kv_read_bytes(own) / 1e6:.2f} MB at {HBM_EFFICIENCY:g} of it:"
            f" {line.per_kv_s * held * 1e6:.1f} us a step"
        )
        yield "  the roofline versus the tables it was fitted to (rms of the logarithm, mean):"
        for name, (rms, mean) in DEVIATIONS.items():
            yield f"    {name:<26} {rms:6.1%} {mean:+7.1%}"
    for n in (1, batch):
        alone = profile.step_s(n, n * held, 0, 0)
        yield f"  {n} decodes of {held:,.0f} tokens: {alone * 1e3:.2f} ms"
    chunk = own.engine[1]
    chunk_s = profile.step_s(0, 0, chunk, chunk * own.lengths.mean_context)
    yield f"  {chunk:,} prompt tokens: {chunk_s * 1e3:.1f} ms, {chunk / chunk_s:,.0f} tokens/s"


def _capacity(plan: Plan) -> Iterator[str]:
    own, lengths = plan.setting, plan.setting.lengths
    yield f"capacity, D = {own.itl_s * 1e3:g} ms between tokens ({own.workload}):"
    yield (
        f"  E[in] {lengths.mean_input:,.0f}, E[out] {lengths.mean_output:,.0f}, a decode attends to"
        f" {lengths.mean_held:,.0f}"
    )
    yield (
        f"  decodes of a step of D: {plan.decodes_in_sla:,.1f},"
        f" with prompts {plan.batch_in_sla:,.1f}"
    )
    yield (
        "  fluid limit: the highest q with T(q T (E[out] - 1), KV of them, q T E[in]) <= T <= D and"
        f" q T E[out] <= {own.slots:,.0f}: {plan.fluid_per_s:.3f}/s"
    )
    yield (
        f"  x {REACHED:g}, what `adaptive` reaches of it (docs/results/g3.md):"
        f" {plan.capacity_per_s:.3f}/s; without an SLA {plan.offline_per_s:.3f}/s"
    )
    if plan.cost is not None:
        yield (
            f"  {own.tp} x {own.price_per_h:g} an hour / 3600 / ({plan.capacity_per_s:.3f} x"
            f" {lengths.mean_output:,.0f} tokens) x 10^6 = {plan.cost:.3f} a million output tokens"
        )


def _choices(plan: Plan) -> Iterator[str]:
    split, drafts = plan.divided, plan.drafted
    prefill, decode = f"{split.prefill_per_s:.2f}", f"{split.decode_per_s:.2f}"
    yield (
        f"disaggregated: prefill {prefill}/s an engine, decode {decode}/s;"
        f" 1 / (1/{prefill} + 1/{decode})"
        f" = {split.per_engine_s:.2f}/s over {split.aggregated_per_s:.2f}: {split.gain:.2f}"
        " (KV transfer not counted)"
    )
    yield (
        f"speculation: {drafts.drafts} drafts at {plan.setting.acceptance:g}: {drafts.tokens:.2f}"
        f" tokens a step, each step verifies {drafts.drafts + 1} a request and drafts with a layer;"
        f" capacity x {drafts.gain:.2f}"
    )
