"""A digest changes with the modules that a run imports, and with no other."""

from pathlib import Path

from benchmarks.report.code import digest, imported_by


def test_imports_are_followed_wherever_they_stand(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "__init__.py").write_text("")
    (tmp_path / "a" / "b.py").write_text("def f():\n    from a import c\n")
    (tmp_path / "a" / "c.py").write_text("import a.b, os\n")
    (tmp_path / "a" / "d.py").write_text("")
    found = imported_by(["a.b"], root=tmp_path)
    assert [path.name for path in found] == ["__init__.py", "b.py", "c.py"]
    before = digest(found)
    (tmp_path / "a" / "d.py").write_text("x = 1\n")
    assert digest(found) == before
    (tmp_path / "a" / "c.py").write_text("import a.b\n")
    assert digest(found) != before != digest(found, "another release")


def test_of_a_closed_module_only_itself_counts(tmp_path: Path) -> None:
    for name, text in (("a", "import b\nimport c\n"), ("b", "import d\n"), ("c", ""), ("d", "")):
        (tmp_path / f"{name}.py").write_text(text)
    found = imported_by(["a"], closed=["b"], root=tmp_path)
    assert [path.name for path in found] == ["a.py", "b.py", "c.py"]
