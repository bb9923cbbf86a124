"""KubeRay's CRD made small: closed objects, and a name for what is repeated."""

from serve_app.checks.compact_crd import compact


def test_the_compact_schema_closes_objects_and_names_what_is_repeated():
    pod = {
        "type": "object",
        "description": "prose",
        "required": ["name"],
        "properties": {
            "name": {"type": "string", "pattern": "^[a-z]([-a-z0-9]*[a-z0-9])?$"},
            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        },
    }
    root = {
        "type": "object",
        "properties": {"head": pod, "worker": pod, "status": {"type": "object"}},
    }
    version = {"name": "v1", "schema": {"openAPIV3Schema": root}}

    schema = compact({"spec": {"versions": [version]}})

    shared = {"$ref": "#/$defs/p0"}
    assert schema["properties"] == {"head": shared, "worker": shared}
    assert schema["additionalProperties"] is False
    closed = {key: value for key, value in pod.items() if key != "description"}
    assert schema["$defs"] == {"p0": {**closed, "additionalProperties": False}}
