"""``brimful check`` on the console: its keys, and that it is said who may see it."""

from serve_app.checks.console import CONSOLE, GUARDED, OPEN
from tests.serve_configs import APP, HERE, config, put


def test_the_console_takes_nothing_but_keys(check):
    data = put(config(), (*APP, "import_path"), "serve_app.console:build")
    data = put(data, (*APP, "args"), {})
    found = check(data)
    assert found.problems == []
    assert found.summary == ["llm at /: the console, which shows the fleet to whoever reaches it"]

    found = check(put(data, (*APP, "args"), {"theme": "dark", "security": {"limits": {}}}))
    assert [problem.partition(";")[0] for problem in found.problems] == [
        "applications[0].args: unknown key 'theme'",
        "applications[0].args.security: unknown key 'limits'",
    ]


def test_a_console_beside_models_with_keys_says_who_may_see_it(check, tmp_path):
    keys = {"keys": {"file": str(tmp_path / "keys")}}
    (tmp_path / "keys").write_text("alice sk-0123456789abcdef")
    console = {"name": "console", "route_prefix": "/console", "import_path": CONSOLE}
    data = put(config(), (*APP, "args", "security"), keys)
    data["applications"].append(console)
    assert [problem.partition(":")[0] for problem in check(data).problems] == [
        "applications[1].args.security.keys"
    ]
    data["applications"][1] = {**console, "args": {"security": keys}}
    found = check(data, HERE)
    assert found.problems == []
    assert found.summary[1] == "console at /console: " + GUARDED
    data["applications"][1] = {**console, "args": {"security": {"keys": None}}}
    found = check(data)
    assert (found.problems, found.summary[1]) == ([], "console at /console: " + OPEN)


def test_keys_of_the_console_that_cannot_be_read_are_named(check, tmp_path):
    (tmp_path / "keys").write_text("alice")
    args = {"security": {"keys": {"file": str(tmp_path / "keys")}}}
    data = put(config(), (*APP, "import_path"), CONSOLE)
    (problem,) = check(put(data, (*APP, "args"), args), HERE).problems
    assert problem.startswith("applications[0].args.security.keys: ")
    assert "line 1: needs either the key or its sha256" in problem
