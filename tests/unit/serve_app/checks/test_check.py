"""``brimful check`` on Serve configurations: what is described, noted, and wrong as a whole."""

import copy

import pytest
import yaml

from serve_app.checks.console import CONSOLE, GUARDED, OPEN
from serve_app.checks.findings import FORWARD_BODY, Target
from serve_app.environment import DIRECT_STREAMING, HA_PROXY
from tests.serve_configs import (
    ARGS,
    DIRECT,
    HERE,
    PLACE,
    config,
    entry,
    having,
    put,
    refused,
    unknown,
)

MODEL = {"model_loading_config": {"model_id": "m", "model_source": "org/m"}}
OTHER = put(entry(), ("model_loading_config", "model_id"), "n")
FORWARDING = Target(env={**DIRECT.env, FORWARD_BODY: "1"}, local_paths=True)
LORA = {"dynamic_lora_loading_path": "s3://b/lora"}
ONE_MODEL = (
    f"{ARGS}.llm_configs: direct streaming takes one model per application, got 2;"
    " make each its own application"
)


def test_a_sound_config_is_described_and_starts_no_ray(check):
    import ray

    found = check(config(), DIRECT)
    assert (found.problems, found.notes) == ([], [])
    assert found.summary == [
        "llm at /: model m, policy adaptive, 50 ms between tokens at p99, 2 to 64 running,"
        " 1 to 3 replicas"
    ]
    assert not ray.is_initialized()


def test_all_problems_are_reported_together(check):
    data = having("batching.sla.itl_ms", 0)
    data = having("engine_kwargs.max_num_seq", 3, data)
    data = having("scaling.drain_s", -1, having("/runtim_env", {}, data))
    assert [problem.split(": ")[0] for problem in check(data).problems] == [
        "applications[0]",
        f"{PLACE}.engine_kwargs",
        f"{PLACE}.batching.sla.itl_ms",
        f"{PLACE}.scaling.drain_s",
    ]


@pytest.mark.parametrize(
    ("second", "says"),
    [
        (None, 'Found multiple configs for application "llm"'),
        ({"name": "other", "import_path": "other:app"}, 'for route prefix "/"'),  # the default
    ],
)
def test_two_applications_may_share_neither_name_nor_route(check, second, says):
    data = config()
    data["applications"].append(second or copy.deepcopy(data["applications"][0]))
    (problem,) = check(data).problems
    assert problem.startswith("applications: ") and says in problem


def test_other_applications_are_checked_by_serves_schema_only(check):
    data = having("/args", {"anything": {"goes": 1}}, having("/import_path", "other:app"))
    found = check(data)
    assert found.problems == []
    assert found.summary == ["llm at /: other:app, checked by Ray Serve's schema only"]


def test_a_single_application_at_the_top_level_is_checked_and_refused(check):
    assert check(having("scaling.drain", 3)["applications"][0]).problems == [
        "applications: required key is missing; Ray Serve no longer takes a single application at"
        " the top level: put it into this list",
        unknown(f"{PLACE}.scaling", "drain", "drain_s"),
    ]


@pytest.mark.parametrize(
    ("data", "target", "line"),
    [
        (config(entry(), OTHER), DIRECT, ONE_MODEL),
        (having("/args.ingress_deployment_config", {"num_replicas": 2}), DIRECT,
         f"{ARGS}.ingress_deployment_config: direct streaming has no ingress deployment; leave"
         " the key out"),
        (config(), Target(env={DIRECT_STREAMING: "1"}, local_paths=True),
         f'{ARGS}: {DIRECT_STREAMING}="1" needs {HA_PROXY}="1" beside it'),
        (having("lora_config", LORA), DIRECT,
         f'{ARGS}.llm_configs: LoRA with direct streaming needs {FORWARD_BODY}="1"'),
        (
            config(entry(), entry()),
            HERE,
            refused(
                f"{ARGS}.llm_configs[1].model_loading_config.model_id",
                "m",
                "another model of this application has it already",
            ),
        ),
        ("- a\n- b\n", HERE, 'top level: must be a mapping, got ["a", "b"]'),
        ("applications: []\n---\nb: 1\n", HERE,
         "2 YAML documents; Ray Serve reads the first one only"),
    ],
    ids=["models", "ingress", "haproxy", "lora", "names", "list", "documents"],
)  # fmt: skip
def test_what_does_not_go_together_is_one_line(check, data, target, line):
    assert check(data, target).problems == [line]


def test_what_direct_streaming_alone_would_refuse_passes_without_it(check):
    found = check(config(entry(), OTHER))
    assert found.problems == []
    assert found.notes == [f"{ONE_MODEL} ({DIRECT_STREAMING} is not set)"]
    assert check(having("lora_config", LORA), FORWARDING).problems == []


OR_FILE = "a mapping, the path of one, or LLMConfig"


def test_an_entry_may_stand_in_a_file_of_its_own(check, tmp_path):
    path = tmp_path / "model.yaml"
    data = having("", str(path))
    assert check(data).problems == [f"{PLACE}: {path}: cannot be read: No such file or directory"]
    wrong = yaml.safe_dump(put(entry(), ("scaling", "drain"), 1))
    for text, problems in (
        ("- a\n", [f"{PLACE} ({path}): ['a'] is not allowed: {OR_FILE}"]),
        (wrong, [unknown(f"{PLACE} ({path}).scaling", "drain", "drain_s")]),
        (yaml.safe_dump(entry()), []),
    ):
        path.write_text(text)
        assert check(data).problems == problems


TWO = {"gold": {"itl_ms": 50}, "batch": {"default": True}}
GATHERED = having("router", {"gather_classes": True}, having("classes", TWO))


@pytest.mark.parametrize(
    ("data", "target", "begins"),
    [
        (having("deployment_config", {"num_replicas": 1}), HERE,
         f"{PLACE}.scaling: has no effect without deployment_config.autoscaling_config"),
        (having("engine_kwargs", {}), HERE,
         f"{PLACE}.engine_kwargs: without max_num_seqs vLLM chooses it"),
        (having("deployment_config.autoscaling_config.look_back_period_s", 5), HERE,
         "`look_back_period_s`"),
        (having("router", {"prefix_affinity": True}), DIRECT,
         f"{PLACE}.router.prefix_affinity: has no effect without {FORWARD_BODY}"),
        (GATHERED, DIRECT, f"{PLACE}.router.gather_classes: has no effect without {FORWARD_BODY}"),
        ({"applications": []}, HERE, "applications: none; deploying this removes all that run"),
    ],
    ids=["scaling", "size", "ray", "prefixes", "classes", "none"],
)  # fmt: skip
def test_what_has_no_effect_is_noted(check, data, target, begins):
    found = check(data, target)
    assert found.problems == []
    (note,) = found.notes
    assert note.startswith(begins)
    if target is DIRECT:
        assert check(data, FORWARDING).notes == check(data).notes == []


def test_classes_are_checked_and_described(check):
    three = {"fast": {"priority": 0}, "slow": {"priority": 9, "sheddable": True, "default": True}}
    found = check(config({**entry(), "classes": three}))
    assert found.problems == []
    assert "classes fast, slow" in "\n".join(found.summary)
    wrong = {"fast": {"ttft": 1}, "slow": {}}
    found = check(config({**entry(), "classes": wrong, "admission": {"shed_at": 2}}))
    assert [line.partition(": ")[0].rpartition("].")[2] for line in found.problems] == [
        "admission.shed_at",
        "classes.fast",
    ]


def app(builder, **args):
    path = f"ray.serve.llm:{builder}"
    return {"applications": [{"name": "a", "import_path": path, "args": args}]}


@pytest.mark.parametrize(
    "path", ["serve_app.build_app", "serve_app.build:build_app", "serve_app.build.build_app"]
)
def test_our_builder_is_known_by_all_of_its_names(check, path):
    data = having("/import_path", path)
    assert check(data).summary[0].startswith("llm at /: model m, policy adaptive")
    wrong = having("scaling.drain", 1, data)
    assert check(wrong).problems == [unknown(f"{PLACE}.scaling", "drain", "drain_s")]


@pytest.mark.parametrize("separator", [":", "."])
def test_blocks_of_ours_under_rays_builder_are_named(check, separator):
    data = having("/import_path", f"ray.serve.llm{separator}build_openai_app")
    says = (
        "is not known to ray.serve.llm:build_openai_app; import_path: serve_app:build_app takes it"
    )
    assert check(having("/args.security", {}, data)).problems == [
        f"{PLACE}.batching: {says}",
        f"{PLACE}.scaling: {says}",
        f"{ARGS}.security: {says}",
    ]


SPLIT = {
    **MODEL,
    "engine_kwargs": {
        "kv_transfer_config": {"kv_connector": "NixlConnector", "kv_role": "kv_both"}
    },
}


@pytest.mark.parametrize(
    "data",
    [
        app("build_openai_app", llm_configs=[MODEL, {"model_loading_config": {"model_id": "n"}}]),
        app("build_pd_openai_app", prefill_config=SPLIT, decode_config=SPLIT),
        app("build_dp_openai_app", llm_config=MODEL | {"engine_kwargs": {"data_parallel_size": 2}}),
    ],
    ids=["openai", "pd", "dp"],
)
def test_what_rays_builders_take_passes(check, data):
    found = check(data)
    assert found.problems == []
    assert found.summary[0].endswith("Ray Serve LLM's own: without our control")


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (app("build_openai_app", llm_configs=[MODEL | {"accelerator_typ": "L4"}]),
         unknown(PLACE, "accelerator_typ", "accelerator_type")),
        (app("build_pd_openai_app", prefill_config=MODEL),
         f"{ARGS}.decode_config: required key is missing"),
        (
            app(
                "build_pd_openai_app",
                prefill_config=MODEL,
                decode_config={"model_loading_config": {"model_id": "n"}},
            ),
            f"{ARGS}: P/D model id mismatch",
        ),
        (app("build_dp_openai_app"), f"{ARGS}.llm_config: required key is missing"),
        (app("build_dp_openai_app", llm_confg=MODEL), unknown(ARGS, "llm_confg", "llm_config")),
    ],
)  # fmt: skip
def test_what_rays_builders_would_refuse_is_named(check, data, problem):
    assert problem in check(data).problems


@pytest.mark.parametrize(
    ("source", "opens"),
    [
        ("openai/whisper-large-v3", "POST /v1/audio/*"),
        ("BAAI/bge-reranker-v2-m3", "POST /v1/rerank"),
        ("Qwen/Qwen2.5-Math-PRM-7B", "POST /classify"),
        ("Qwen/Qwen2.5-7B-Instruct", None),
        ("/rerankers/llama", None),
        ("BAAI/bge-m3", None),
    ],
)
def test_a_model_whose_routes_are_closed_is_told_what_opens_them(check, source, opens):
    model = {"model_loading_config": {"model_id": "x", "model_source": source}}
    notes = [note for note in check(config(model)).notes if "closed" in note]
    assert bool(notes) == bool(opens)
    for note in notes:
        assert note.startswith(f"{PLACE}: a ") and f"security: {{extra_paths: [{opens!r}]}}" in note
        opened = having("/args.security", {"extra_paths": [opens]}, config(model))
        assert check(opened).notes == []


def test_the_console_takes_nothing_but_keys(check):
    data = having("/args", {}, having("/import_path", "serve_app.console:build"))
    found = check(data)
    assert found.problems == []
    assert found.summary == ["llm at /: the console, which shows the fleet to whoever reaches it"]
    found = check(having("/args", {"theme": "dark", "security": {"limits": {}}}, data))
    assert [problem.partition(";")[0] for problem in found.problems] == [
        f"{ARGS}: unknown key 'theme'",
        f"{ARGS}.security: unknown key 'limits'",
    ]


def test_a_console_beside_models_with_keys_says_who_may_see_it(check, tmp_path):
    keys = {"keys": {"file": str(tmp_path / "keys")}}
    (tmp_path / "keys").write_text("alice sk-0123456789abcdef")
    console = {"name": "console", "route_prefix": "/console", "import_path": CONSOLE}
    data = having("/args.security", keys)
    data["applications"].append(console)
    assert [problem.partition(":")[0] for problem in check(data).problems] == [
        "applications[1].args.security.keys"
    ]
    for security, summary in ((keys, GUARDED), ({"keys": None}, OPEN)):
        data["applications"][1] = {**console, "args": {"security": security}}
        found = check(data)
        assert (found.problems, found.summary[1]) == ([], f"console at /console: {summary}")


def test_keys_of_the_console_that_cannot_be_read_are_named(check, tmp_path):
    (tmp_path / "keys").write_text("alice")
    args = {"security": {"keys": {"file": str(tmp_path / "keys")}}}
    (problem,) = check(having("/args", args, having("/import_path", CONSOLE))).problems
    assert problem.startswith("applications[0].args.security.keys: ")
    assert "line 1: needs either the key or its sha256" in problem


BATCHES = {
    "name": "batches",
    "route_prefix": "/batches",
    "import_path": "serve_app.batches:build",
    "args": {"serves": "http://127.0.0.1:8000/v1", "folder": "/var/lib/brimful"},
}


def test_the_batch_application_is_checked_key_by_key(check):
    data = having("/args", BATCHES["args"], having("/import_path", BATCHES["import_path"]))
    found = check(data)
    assert found.problems == []
    assert found.summary == [
        "llm at /: batches of requests for http://127.0.0.1:8000/v1, kept in /var/lib/brimful"
    ]
    wrong = {"serves": "localhost", "folder": "here", "tier": "late"}
    found = check(having("/args", wrong, data))
    assert [problem.partition(":")[0] for problem in found.problems] == [
        f"{ARGS}.serves",
        f"{ARGS}.folder",
        ARGS,
    ]


def test_batches_beside_classes_name_one_of_them(check):
    data = having("classes", {"online": {"default": True}, "late": {"aliases": ["flex"]}})
    data["applications"].append(BATCHES)
    (problem,) = check(data).problems
    assert problem.startswith("applications[1].args.service_tier: required key is missing")
    for tier, good in (("late", True), ("flex", True), ("batch", False)):
        data["applications"][1] = {**BATCHES, "args": {**BATCHES["args"], "service_tier": tier}}
        assert (check(data).problems == []) == good


@pytest.mark.parametrize(
    ("tier", "says"),
    [
        ("online", None),
        ("never", "'never' is not allowed: no such class; allowed: late, online, slow"),
        ("slow", "'slow' is not allowed: its class has autoscale: false, so a batch"),
        ("late", "'late' is not allowed: another class than service_tier, which is needed with it"),
    ],
)
def test_batches_that_are_urgent_are_of_a_class_that_buys_replicas(check, tier, says):
    classes = {"online": {"default": True}, "late": {}, "slow": {"autoscale": False}}
    data = having("classes", classes)
    args = BATCHES["args"] | {"service_tier": "late", "urgent_tier": tier}
    data["applications"].append({**BATCHES, "args": args})
    problems = check(data).problems
    assert len(problems) == (says is not None)
    assert all(p.startswith(f"applications[1].args.urgent_tier: {says}") for p in problems)


@pytest.mark.parametrize(
    ("counts", "problems", "notes"),
    [
        ((True, True), 0, 0),
        ((False, False), 1, 0),
        ((False, True), 0, 1),
        ((True, False), 0, 1),
    ],
)
def test_an_urgent_class_that_buys_replicas_in_one_application_alone_is_noted(
    check, counts, problems, notes
):
    args = BATCHES["args"] | {"service_tier": "late", "urgent_tier": "online"}
    apps = []
    for k, autoscale in enumerate(counts):
        classes = {"online": {"default": True, "autoscale": autoscale}, "late": {}}
        (app,) = having("classes", classes)["applications"]
        apps.append({**app, "name": f"llm{k}", "route_prefix": f"/llm{k}"})
    found = check({**config(), "applications": [*apps, {**BATCHES, "args": args}]})
    place = "applications[2].args.urgent_tier: 'online' "
    assert len([p for p in found.problems if p.startswith(place)]) == problems
    assert len([n for n in found.notes if n.startswith(place)]) == notes
