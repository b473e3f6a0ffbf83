"""Names in certificates and the rules that map them, against Java's own classes and Kafka's."""

import json
import random
import subprocess
from pathlib import Path

import pytest
from tests.support.brokers.maven import KAFKA_4, jars
from tests.support.frames.der_names import (
    BIT_STRING,
    BMP,
    IA5,
    PRINTABLE,
    T61,
    UTF8,
    Attribute,
    certificate_of,
    der_name,
)

from kafka_quotas.core.errors import UsageError
from kafka_quotas.enforcement.config.principal_mapping import PrincipalMapping
from kafka_quotas.wire.connection.distinguished_name import subject_name

PROGRAM = """
import java.io.*;
import java.util.*;
import javax.security.auth.x500.X500Principal;
import org.apache.kafka.common.security.ssl.SslPrincipalMapper;

public class Principals {
    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        PrintStream out = new PrintStream(System.out, true, "UTF-8");
        for (String line; (line = in.readLine()) != null; ) {
            String[] parts = line.split("\\t", -1);
            if (parts[0].equals("name")) {
                out.println(hex(new X500Principal(HexFormat.of().parseHex(parts[1])).getName()));
                continue;
            }
            try {
                out.println(hex(SslPrincipalMapper.fromRules(text(parts[1])).getName(text(parts[2]))));
            } catch (SslPrincipalMapper.NoMatchingRule refused) {
                out.println("none");
            } catch (RuntimeException refused) {
                out.println("refused");
            }
        }
    }
    static String hex(String text) throws Exception { return "=" + HexFormat.of().formatHex(text.getBytes("UTF-8")); }
    static String text(String hex) throws Exception { return new String(HexFormat.of().parseHex(hex), "UTF-8"); }
}
"""
TYPES = [
    "2.5.4.3", "2.5.4.4", "2.5.4.5", "2.5.4.6", "2.5.4.7", "2.5.4.8", "2.5.4.9", "2.5.4.10", "2.5.4.11", "2.5.4.12",
    "2.5.4.42", "2.5.4.46", "0.9.2342.19200300.100.1.1", "0.9.2342.19200300.100.1.25", "1.2.840.113549.1.9.1",
    "1.3.6.1.4.1.311.60.2.1.3", "2.999.3",
]  # fmt: skip
TEXTS = ["alice", "", " ", "  lead", "trail  ", "#hash", "a,b", "a+b=c", '"q"', "back\\slash", "<a>;b", "größe", "ключ",
         "a\0b", "\r", "x\r", "line\nbreak", "日本", "\u00a0", "a" * 200]  # fmt: skip
NAME = "CN=alice,OU=Payments,O=Example\\, Inc.,C=DE"
RULES = [
    "DEFAULT",
    "",
    "RULE:^CN=(.*?),OU=(.*?),.*$/$1@$2/",
    "RULE:^CN=(.*?),OU=(.*?),.*$/$1@$2/L",
    "RULE:^CN=(.*?),.*$/$1/U, DEFAULT",
    "RULE:^CN=bob,.*$/bob/,RULE:^CN=(\\w+),.*$/user-$1/",
    "RULE:^CN=(.*?),.*$/$1$2/",
    "RULE:^CN=(.*?),.*$/\\$1/",
    "RULE:^CN=(.*?),.*$/$12/",
    "RULE:^CN=(.*?),.*$/$0/",
    "RULE:.*/x/",
    "RULE:^C(N)=.*$/$1$9/L",
    "RULE:^OU=.*$/none/",
    "RULE:^CN=(.*?),OU=(.*?),O=.*\\/x$/$1/\nDEFAULT",
    "RULE:^CN=(?<who>.*?),.*$/${who}!/",
    "RULE:[/x/",
    "RULE:^CN=(.*)$/$1",
    "DEFAULT trailing",
    "RULE:^.*$/a\\/b/",
    "RULE:(?i)^cn=.*$/x/",
    "RULE:^CN=(.*?)$/$1/ \n ,DEFAULT",
]


def ask_java(folder: Path, questions: list[str]) -> list[str]:
    program = folder / "Principals.java"
    program.write_text(PROGRAM, encoding="utf-8")
    done = subprocess.run(
        ["java", "-cp", f"{jars(KAFKA_4)}/*", str(program)],
        input="".join(f"{question}\n" for question in questions),
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    return [
        bytes.fromhex(line[1:]).decode() if line.startswith("=") else line.strip() for line in done.stdout.splitlines()
    ]


def some_names() -> list[bytes]:
    chance = random.Random(5)

    def attribute() -> Attribute:
        tag = chance.choice((UTF8, PRINTABLE, T61, IA5, BMP, BIT_STRING, UTF8, PRINTABLE))
        text = chance.choice(TEXTS)
        value = b"\0ab" if tag == BIT_STRING else text.encode("utf-16-be") if tag == BMP else text.encode()
        return Attribute(chance.choice(TYPES), tag, value)

    names = [[[Attribute(kind, UTF8, text.encode())]] for kind in TYPES for text in TEXTS]
    names += [
        [[attribute() for _ in range(chance.choice((1, 1, 1, 2, 3)))] for _ in range(chance.randrange(6))]
        for _ in range(500)
    ]
    return [der_name(name) for name in names]


def test_names_are_javas_and_mapped_users_are_kafkas(tmp_path: Path) -> None:
    names = some_names()
    subjects = [NAME, "CN=alice", "", "CN=a,OU=b,c"]
    mapped = [(rules, subject) for rules in RULES for subject in subjects]
    questions = [f"name\t{name.hex()}" for name in names]
    questions += [f"map\t{rules.encode().hex()}\t{subject.encode().hex()}" for rules, subject in mapped]
    answers = ask_java(tmp_path, questions)
    assert len(answers) == len(questions)
    for name, answer in zip(names, answers, strict=False):
        assert subject_name(certificate_of(name)) == answer, name.hex()
        assert subject_name(certificate_of(name, with_version=False)) == answer
    wrong = {}
    for (rules, subject), answer in zip(mapped, answers[len(names) :], strict=True):
        try:
            user = PrincipalMapping(rules).user(subject)
            ours = "none" if user is None else user
        except UsageError:
            ours = "refused"
        if ours != answer:
            wrong[rules, subject] = (ours, answer)
    assert not wrong, json.dumps({str(key): value for key, value in wrong.items()}, indent=1)


@pytest.mark.parametrize("rules", ["RULE:[a-z&&[^b]]/x/", "RULE:(/x/", "RULE:^(?i)a/x/", "nonsense"])
def test_rules_that_cannot_be_read_are_refused(rules: str) -> None:
    with pytest.raises(UsageError, match=r"ssl\.principal\.mapping\.rules"):
        PrincipalMapping(rules)
