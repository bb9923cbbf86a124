"""The Helm chart gives the overlays' very objects, and changes what values say and nothing else."""

import os
from typing import Any

import pytest
import yaml

from tests.unit.k8s.conftest import documents, the
from tools.kubernetes import CHART, K8S, KubernetesError, chart_files, overlays, render, run

EXAMPLE = CHART / "examples" / "many-models.yaml"


def helm(*arguments: str) -> str:
    return run("helm", "template", "release", str(CHART), *arguments)


def by_name(objects: Any) -> dict[tuple[str, str], Any]:
    """Objects by kind and name, the Serve configuration as what it says."""
    found = {}
    for one in objects:
        if one["kind"] == "RayService":
            one["spec"]["serveConfigV2"] = yaml.safe_load(one["spec"]["serveConfigV2"])
        found[one["kind"], one["metadata"]["name"]] = one
    return found


def rendered(*arguments: str) -> dict[tuple[str, str], Any]:
    return by_name(yaml.safe_load_all(helm(*arguments)))


def service(*arguments: str) -> dict[str, Any]:
    return rendered(*arguments)["RayService", "brimful"]


@pytest.mark.parametrize("name", [None, *overlays()])
def test_the_chart_renders_the_objects_of_the_overlay_or_of_the_base(name):
    if name is None:
        assert rendered() == by_name(yaml.safe_load_all(render(K8S / "base")))
    else:
        assert rendered("--set", f"overlay={name}") == by_name(documents(name))


def test_its_files_are_those_of_the_overlays_as_they_are_now():
    """What they say, not how: kustomize writes it otherwise now and then."""
    made = chart_files()
    stale = [
        path.name
        for path, text in made.items()
        if not path.exists()
        or list(yaml.safe_load_all(path.read_text())) != list(yaml.safe_load_all(text))
    ]
    assert stale == [], "run `make chart`"
    assert {*(CHART / "overlays").iterdir()} == set(made)


def test_models_as_values_give_what_the_overlay_of_two_models_has():
    expected = the("RayService", documents("many-models"))
    assert service("-f", str(EXAMPLE)) == by_name([expected])["RayService", "brimful"]


@pytest.mark.parametrize(("name", "tag"), [("spot", "7"), ("cpu", "7-cpu")])
def test_the_image_or_its_twin_is_that_of_every_ray_container(name, tag, tmp_path):
    # kustomize takes no absolute path.
    overlay = os.path.relpath((K8S / "overlays" / name).resolve(), tmp_path.resolve())
    image = {"name": "brimful", "newName": "registry/brimful", "newTag": tag}
    text = yaml.safe_dump({"resources": [overlay], "images": [image]})
    (tmp_path / "kustomization.yaml").write_text(text)
    expected = by_name(yaml.safe_load_all(render(tmp_path)))
    assert rendered("--set", f"overlay={name},image=registry/brimful:7") == expected


def test_sla_replicas_and_cards_of_the_only_model():
    values = ["sla.itl_ms=60", "replicas.min=2", "replicas.max=4", "cards=2"]
    changed = service(*[part for one in values for part in ("--set", f"models[0].{one}")])
    expected = by_name(yaml.safe_load_all(render(K8S / "base")))["RayService", "brimful"]
    (app,) = expected["spec"]["serveConfigV2"]["applications"]
    (entry,) = app["args"]["llm_configs"]
    entry["batching"]["sla"]["itl_ms"] = 60
    entry["engine_kwargs"]["tensor_parallel_size"] = 2
    entry["deployment_config"]["autoscaling_config"] |= {"min_replicas": 2, "max_replicas": 4}
    (group,) = expected["spec"]["rayClusterConfig"]["workerGroupSpecs"]
    group |= {"minReplicas": 2, "replicas": 2, "maxReplicas": 4}
    resources = group["template"]["spec"]["containers"][0]["resources"]
    for held in resources.values():
        held["nvidia.com/gpu"] = "2"

    assert changed == expected


def test_spot_workers_take_what_is_above_the_least():
    values = "overlay=spot,models[0].replicas.min=3,models[0].replicas.max=5"
    cluster = service("--set", values)["spec"]["rayClusterConfig"]
    sizes = [(g["minReplicas"], g["maxReplicas"]) for g in cluster["workerGroupSpecs"]]
    assert sizes == [(3, 3), (0, 2)]
    _, anchor = service("--set", values)["spec"]["serveConfigV2"]["applications"]
    assert anchor["args"] == {"workers": 3}


REFUSED = [
    ("overlay=on-model", '"on-model" is not allowed: must be one of base, cpu, '),
    ("imag=x", "additional properties 'imag' not allowed"),
    ("models[0].sla.itl=60", "additional properties 'itl' not allowed"),
    ("models[0].replicas.min=3,models[0].replicas.max=2", "replicas.min: 3 is not allowed"),
    ("overlay=cpu,models[0].cards=2", "cards: 2 is not allowed: workers of this overlay"),
    ("overlay=spot,models[0].replicas.min=0,models[0].replicas.max=2", "so many lasting workers"),
]


@pytest.mark.parametrize(("values", "says"), REFUSED, ids=lambda one: one[:20])
def test_a_value_that_the_chart_does_not_know_is_refused_by_name(values, says):
    with pytest.raises(KubernetesError) as error:
        helm("--set", values)
    assert says in str(error.value)
