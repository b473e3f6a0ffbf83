"""Groups put into a policy file: what is kept to the byte, what is replaced, and what is refused."""

import pytest

from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.groups.group import Group, GroupMember
from kafka_quotas.core.quota_files.writer import with_groups

HEAD = '# The policy.\ninternal_principals = ["broker"]   # odd   spacing\n\n[[entity]]\nuser = "a"\nrequest_rate = 5\n'
TAIL = '\n# topics\n[thresholds]\ntotal = "200MiB"   # all\n'
WEB = '# the web team\n[[group]]\nname = "web"   # kept\nproducer_byte_rate = "1MiB"\n'
OPS = '[[group]]\nname = "ops"\n[[group.members]]\nuser = "ops"\n[group.guaranteed]\n'
NEW = Group(name="new", members=(GroupMember(user="x"),), producer_byte_rate=5.0)
NEW_TEXT = '[[group]]\nname = "new"\nmembers = [{ user = "x" }]\nproducer_byte_rate = 5\n'
WEB_GROUP = Group(name="web", producer_byte_rate=1024.0**2)
OPS_GROUP = Group(name="ops", members=(GroupMember(user="ops"),))


def test_a_file_without_groups_gets_them_at_its_end() -> None:
    assert with_groups(HEAD, [NEW]) == f"{HEAD}\n{NEW_TEXT}"
    assert with_groups("", [NEW]) == NEW_TEXT
    assert with_groups(HEAD.rstrip("\n"), [NEW]) == f"{HEAD}\n{NEW_TEXT}"


def test_groups_that_do_not_change_and_everything_else_stay_to_the_byte() -> None:
    text = f"{HEAD}\n{OPS}\n{WEB}{TAIL}"
    assert with_groups(text, [OPS_GROUP, WEB_GROUP]) == text
    assert with_groups(text, [OPS_GROUP, NEW, WEB_GROUP]) == f"{HEAD}\n{OPS}\n{NEW_TEXT}\n{WEB}{TAIL}"


def test_a_changed_group_keeps_the_comments_before_it_and_a_removed_one_takes_them_along() -> None:
    text = f"{HEAD}\n{OPS}\n{WEB}{TAIL}"
    changed = Group(name="web", producer_byte_rate=2.0)
    written = '# the web team\n[[group]]\nname = "web"\nproducer_byte_rate = 2\n'
    assert with_groups(text, [OPS_GROUP, changed]) == f"{HEAD}\n{OPS}\n{written}{TAIL}"
    assert with_groups(text, [OPS_GROUP]) == f"{HEAD}\n{OPS}{TAIL}"
    assert with_groups(text, []) == f"{HEAD}\n{TAIL}"


def test_sections_apart_end_up_where_the_first_one_was() -> None:
    text = f"{OPS}{TAIL}\n{WEB}"
    assert with_groups(text, [WEB_GROUP, OPS_GROUP]).startswith('[[group]]\nname = "web"   # kept\n')
    assert TAIL in with_groups(text, [WEB_GROUP, OPS_GROUP])


def test_line_ends_of_windows_stay() -> None:
    text = f"{HEAD}\n{WEB}{TAIL}".replace("\n", "\r\n")
    found = with_groups(text, [WEB_GROUP, NEW])
    assert found.count("\n") == found.count("\r\n")
    assert found.startswith(HEAD.replace("\n", "\r\n"))


def test_groups_of_a_table_are_replaced_in_it() -> None:
    text = '[policy]\ninternal_principals = ["x"]\n[[policy.group]]\nname = "web"\n[listener.a]\nport = 1\n'
    found = with_groups(text, [NEW], "policy")
    section = NEW_TEXT.replace("[group]", "[policy.group]")
    assert found == text.replace('[[policy.group]]\nname = "web"\n', f"{section}\n")


@pytest.mark.parametrize(
    "text",
    [
        'group = [{ name = "web" }]\n',
        'note = """\n[[group]]\nname = "web"\n"""\n',
        '[[ "group" ]]\nname = "web"\n',
    ],
)
def test_a_file_in_an_unforeseen_form_is_refused_and_not_damaged(text: str) -> None:
    with pytest.raises(UsageError, match="can't be replaced without a change to anything else") as caught:
        with_groups(text, [NEW])
    assert "by hand" in (caught.value.hint or "")
