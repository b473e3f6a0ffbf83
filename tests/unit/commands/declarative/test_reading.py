"""A hostile file ends in one clear line, soon, and without filling the memory."""

import time
from pathlib import Path

import pytest
from tests.support.processes.run_cli import run_cli

from kafka_quotas.commands.declarative.reading import MAX_BYTES

BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{name}: &{name} [{','.join([f'*{before}'] * 9)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
ENTRY = "- {entity: {user: a}, quotas: {producer_byte_rate: 1}}\n"
HOSTILE = {
    "bomb.yaml": (BOMB, "unknown section: 'a'"),
    "aliases.yaml": (f"values: &v\n  {BOMB.replace(chr(10), chr(10) + '  ')}\n", "anchors and aliases are not taken"),
    "recursive.yaml": ("entries: &e\n  - *e\n", "anchors and aliases are not taken"),
    # libyaml of PyYAML 6.0.4 refuses the depth; before, our reader refuses the outermost list.
    "deep_flow.yaml": ("[" * 250_000, ("an entry is not a mapping", "exceeded maximum nesting depth")),
    "deep_entity.yaml": ("- {entity: " + "{a: " * 100_000, "nested too deep"),
    "deep_tagged.yaml": ("- {entity: " + "! {a: " * 100_000, "nested too deep"),
    "deep_block.yaml": ("entries:\n- entity:\n" + "".join(f"{' ' * n}a:\n" for n in range(3, 2000)), "nested too deep"),
    "long_flow.yaml": ("[" + "a," * 150_000 + "]", "too many items"),
    "many_keys.yaml": ("values: {" + "".join(f"k{number}: 1, " for number in range(100_000)) + "}", "too many names"),
    "giant_word.yaml": ("a" * 4_000_000, "aaa...' is not a mapping"),
    "giant_name.yaml": (f"- {{entity: {{user: {'a' * 2_000_000}}}, quotas: {{x: 1}}}}", "unknown quota key: 'x'"),
    "giant_key.yaml": (f"? {'a' * 1_000_000}\n: 1\n", "unknown section: 'aaaa"),
    "documents.yaml": (f"{ENTRY}" + "---\n" * 250_000, "a second document begins"),
    "same.yaml": (ENTRY * 5000, "user a appears twice"),
    "control.yaml": ("- \x01", "not YAML: "),
    "object.yaml": ("!!python/object/apply:os.system ['true']", "tags are not taken"),
    "deep.json": ("[" * 250_000, "nested too deep"),
    "deep_object.json": ('{"a":' * 250_000, "nested too deep"),
    "digits.json": ("[" + "1" * 1_000_000 + "]", "too many digits"),
    "list.json": ("[" + "1," * 1_200_000 + "1]", "entries.1: 1 is not a mapping (and 999 more)"),
    "words.json": ('"' + "a" * 4_000_000 + '"', "aaa...' is not a mapping"),
    "large.toml": ("a = 1\n" * 1_000_000, "larger than 1 MiB"),
    "deep.toml": ("a = " + "[" * 100_000, "nested too deep"),
    "array.toml": ("entries = [" + "1," * 100_000 + "]", "entries.1: 1 is not a mapping (and 999 more)"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_one_clear_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """With a tenth of the items that a file may have, which take a tenth of the time."""
    monkeypatch.setattr("kafka_quotas.stores.files.yaml_reader.MAX_ITEMS", 100_000)
    text, message = HOSTILE[name]
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    begin_s = time.process_time()  # a busy machine takes longer, not more
    code, out, err = run_cli("diff", str(path), "--store", f"local:{tmp_path / 'q.db'}")
    assert time.process_time() - begin_s < 3
    assert (code, out) == (2, "")
    lines = err.splitlines()
    assert lines[0].startswith("error: ")
    assert any(each in lines[0] for each in ((message,) if isinstance(message, str) else message))
    assert len(lines) <= 2
    assert len(lines[0]) < 500 + len(str(path))


@pytest.mark.parametrize("name", ["huge.yaml", "huge.json", "huge.toml"])
def test_a_file_of_100_mb_is_not_read(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    with path.open("wb") as file:
        file.truncate(100_000_000)
    begin_s = time.process_time()  # a busy machine takes longer, not more
    code, _, err = run_cli("apply", str(path), "--store", f"local:{tmp_path / 'q.db'}")
    assert time.process_time() - begin_s < 5
    assert code == 2
    assert "larger than" in err
    assert path.stat().st_size > MAX_BYTES
