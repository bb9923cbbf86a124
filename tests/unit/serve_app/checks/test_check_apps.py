"""``brimful check`` on applications of other builders, and on routes that are closed."""

import json

import pytest

from tests.serve_configs import APP, ENTRY, config, entry, put, unknown

ARGS = "applications[0].args"
PLACE = f"{ARGS}.llm_configs[0]"
MODEL = {"model_loading_config": {"model_id": "m", "model_source": "org/m"}}
TRANSFER = {"kv_connector": "NixlConnector", "kv_role": "kv_both"}
SPLIT = {**MODEL, "engine_kwargs": {"kv_transfer_config": TRANSFER}}
OURS = ["serve_app.build_app", "serve_app.build:build_app", "serve_app.build.build_app"]


def app(builder, **args):
    path = f"ray.serve.llm:{builder}"
    return {"applications": [{"name": "a", "import_path": path, "args": args}]}


@pytest.mark.parametrize("path", OURS)
def test_our_builder_is_known_by_all_of_its_names(check, path):
    data = put(config(), (*APP, "import_path"), path)
    assert check(data).summary[0].startswith("llm at /: model m, policy adaptive")
    wrong = put(data, (*ENTRY, "scaling", "drain"), 1)
    assert check(wrong).problems == [unknown(f"{PLACE}.scaling", "drain", "drain_s")]


@pytest.mark.parametrize(
    "path", ["ray.serve.llm:build_openai_app", "ray.serve.llm.build_openai_app"]
)
def test_blocks_of_ours_under_rays_builder_are_named(check, path):
    data = put(config(), (*APP, "import_path"), path)
    data = put(data, (*APP, "args", "security"), {})
    name = "ray.serve.llm:build_openai_app"
    says = f"is not known to {name}; import_path: serve_app:build_app takes it"
    assert check(data).problems == [
        f"{ARGS}.security: {says}",
        f"{PLACE}.batching: {says}",
        f"{PLACE}.scaling: {says}",
    ]


@pytest.mark.parametrize(
    "data",
    [
        app("build_openai_app", llm_configs=[MODEL, {"model_loading_config": {"model_id": "n"}}]),
        app("build_pd_openai_app", prefill_config=SPLIT, decode_config=SPLIT),
        app(
            "build_dp_openai_app",
            llm_config={**MODEL, "engine_kwargs": {"data_parallel_size": 2}},
        ),
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
        (
            app("build_openai_app", llm_configs=[{**MODEL, "engine_kwargs": {"max_num_seq": 1}}]),
            unknown(f"{PLACE}.engine_kwargs", "max_num_seq", "max_num_seqs"),
        ),
        (
            app("build_pd_openai_app", prefill_config=MODEL),
            f"{ARGS}.decode_config: required key is missing",
        ),
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
        (
            app("build_openai_app", llm_configs=[{**MODEL, "runtime_env": {"env_vars": {"A": 1}}}]),
            f"{PLACE}.runtime_env.env_vars.A: 1 is not allowed: must be a string (quote it)",
        ),
    ],
)
def test_what_rays_builders_would_refuse_is_named(check, data, problem):
    assert problem in check(data).problems


def test_an_engine_of_several_ranks_is_named(check):
    (problem,) = check(put(config(), (*ENTRY, "engine_kwargs", "data_parallel_size"), 4)).problems
    assert problem.startswith(f"{PLACE}.engine_kwargs.data_parallel_size: 4 is not allowed")


@pytest.mark.parametrize(
    ("key", "value", "near"),
    [("tool_call_parser", "hermess", "hermes"), ("reasoning_parser", "qwen_3", "qwen3")],
)
def test_a_parser_that_vllm_does_not_have_is_named(check, key, value, near):
    data = put(config(), (*ENTRY, "engine_kwargs", key), value)
    place = f"{PLACE}.engine_kwargs.{key}"
    assert check(data).problems == [f"{place}: {value!r} is not allowed: did you mean {near!r}?"]
    assert check(put(data, (*ENTRY, "engine_kwargs", key), near)).problems == []


CLOSED = [
    ("openai/whisper-large-v3", "POST /v1/audio/*"),
    ("BAAI/bge-reranker-v2-m3", "POST /v1/rerank"),
    ("Qwen/Qwen2.5-Math-PRM-7B", "POST /classify"),
    ("org/text-classifier", "POST /classify"),
]


@pytest.mark.parametrize(("source", "opens"), CLOSED)
def test_a_model_whose_routes_are_closed_is_told_what_opens_them(check, source, opens):
    model = {"model_loading_config": {"model_id": "x", "model_source": source}}
    found = check(config(model))
    assert found.problems == []
    (note,) = found.notes
    assert note.startswith(f"{PLACE}: a ") and f"security: {{extra_paths: [{opens!r}]}}" in note
    opened = put(config(model), (*APP, "args", "security"), {"extra_paths": [opens]})
    assert check(opened).notes == []


@pytest.mark.parametrize("source", ["Qwen/Qwen2.5-7B-Instruct", "/rerankers/llama", "BAAI/bge-m3"])
def test_a_model_whose_routes_are_open_is_told_nothing(check, source):
    model = {"model_loading_config": {"model_id": "x", "model_source": source}}
    assert not [note for note in check(config(model)).notes if "closed" in note]


def test_a_folders_own_configuration_says_what_the_model_is(check, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["WhisperForConditional"]}))
    data = put(config(entry()), (*ENTRY, "model_loading_config", "model_source"), str(tmp_path))
    (note,) = check(data).notes
    assert "a speech model answers on /v1/audio/transcriptions" in note
