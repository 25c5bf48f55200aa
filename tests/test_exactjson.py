"""Exact JSON: what is stored reads back to the same bytes, and nothing unstorable gets that far."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import json
import math
import pathlib
import subprocess
import sys
import time
import uuid
from collections import OrderedDict, UserDict, deque, namedtuple
from typing import Any

import pydantic
import pytest
from django.contrib.auth.models import Group
from django.utils.functional import SimpleLazyObject
from django.utils.safestring import mark_safe
from django.utils.translation import gettext_lazy
from hypothesis import given, settings
from hypothesis import strategies as st

from anvil_django import exactjson
from anvil_django.errors import NotJSONError

# Every str Python can hold, lone surrogates and NUL included.
any_text = st.text(alphabet=st.characters(exclude_categories=()), max_size=20)
scalars = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), any_text)
json_like = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(any_text, inner, max_size=4)),
    max_leaves=30,
)


def nested(levels: int, inner: Any = None) -> Any:
    value = inner if inner is not None else []
    for _ in range(levels):
        value = [value]
    return value


def depth(value: Any) -> int:
    most, level = 0, [value]
    while level := [item for item in level if isinstance(item, (list, dict))]:
        most += 1
        level = [x for item in level for x in (item.values() if isinstance(item, dict) else item)]
    return most


class TestWriting:
    @given(json_like, st.booleans())
    def test_clean_text_reads_back_to_the_same_bytes(self, value: Any, keep_nul: bool) -> None:
        text = exactjson.dumps(exactjson.clean(value, keep_nul=keep_nul))
        assert text.isascii()
        assert exactjson.dumps(exactjson.loads(text)) == text

    @given(json_like)
    def test_a_clean_value_reads_back_equal(self, value: Any) -> None:
        cleaned = exactjson.clean(value)
        assert exactjson.loads(exactjson.dumps(cleaned)) == cleaned

    def test_key_order_is_kept_and_nothing_is_padded(self) -> None:
        assert exactjson.dumps({"b": 1, "a": [1, "é"]}) == '{"b":1,"a":[1,"\\u00e9"]}'

    @pytest.mark.parametrize("number", [1e22, -0.0, 1e308, 5e-324, 0.1, 1.0, 2**70])
    def test_numbers_keep_their_spelling(self, number: float) -> None:
        text = exactjson.dumps(number)
        assert exactjson.dumps(exactjson.loads(text)) == text
        assert str(exactjson.loads(text)) == str(number)

    @pytest.mark.parametrize(
        "value",
        [math.nan, math.inf, b"x", {1, 2}, nested(50_000), 10**5000],
        ids=["nan", "infinity", "bytes", "set", "deep", "long"],
    )
    def test_what_is_not_json_is_refused(self, value: Any) -> None:
        with pytest.raises(NotJSONError):
            exactjson.dumps(value)

    @pytest.mark.parametrize("text", ["NaN", "[Infinity]", '{"a": -Infinity}'])
    def test_reading_refuses_what_is_not_json(self, text: str) -> None:
        with pytest.raises(ValueError, match="is not JSON"):
            exactjson.loads(text)


class TestCleaning:
    @given(json_like)
    def test_the_result_passes_every_database_and_the_sdk(self, value: Any) -> None:
        text = json.dumps(exactjson.clean(value), ensure_ascii=False, allow_nan=False)
        text.encode("utf-8")
        assert "\\u0000" not in text.replace("\\\\", "")

    @given(json_like, st.booleans())
    def test_cleaning_twice_changes_nothing_and_copies_nothing(self, value: Any, keep_nul: bool) -> None:
        once = exactjson.clean(value, keep_nul=keep_nul)
        assert exactjson.clean(once, keep_nul=keep_nul) is once

    @given(json_like)
    def test_encoding_json_is_cleaning_it(self, value: Any) -> None:
        assert exactjson.dumps(exactjson.encode(value)) == exactjson.dumps(exactjson.clean(value))

    @pytest.mark.parametrize(
        "value",
        [
            {"a": [1, 2.5, None, True, "text"]},
            {"emoji": "😀", "hangul": "한글 ퟿"},
            {"\\u0000": "six characters, not one"},
            [],
            {},
            "",
            nested(99),
        ],
    )
    def test_a_clean_value_comes_back_as_the_same_object(self, value: Any) -> None:
        assert exactjson.clean(value) is value
        assert exactjson.encode(value) is value

    @pytest.mark.parametrize(
        ("dirty", "clean"),
        [
            ("a\ud800b", "a\ufffdb"),
            ("\udc00\ud800", "\ufffd\ufffd"),
            ("\ud83d\ude00", "😀"),
            ("\ud83d\ud83d\ude00\ude00", "\ufffd😀\ufffd"),
            ("a\0b", "a\ufffdb"),
            (r"a\u0000b", r"a\u0000b"),
            ({"k\0\ud800": 1}, {"k\ufffd\ufffd": 1}),
        ],
    )
    def test_text_becomes_valid_unicode(self, dirty: Any, clean: Any) -> None:
        assert exactjson.clean(dirty) == clean

    def test_the_models_own_nul_is_kept(self) -> None:
        assert exactjson.clean({"a\0": "\0"}, keep_nul=True) == {"a\0": "\0"}
        assert exactjson.clean(["\0\ud800"], keep_nul=True) == ["\0\ufffd"]

    def test_numbers_without_json_form_become_their_names(self) -> None:
        value = [math.nan, math.inf, -math.inf, {"x": (math.nan,)}]
        assert exactjson.clean(value) == ["NaN", "Infinity", "-Infinity", {"x": ["NaN"]}]

    def test_integers_too_long_to_print_become_a_note(self) -> None:
        longest = 10**4300 - 1
        assert exactjson.clean([longest, -longest]) == [longest, -longest]
        assert exactjson.clean([longest + 1, {"a": -longest - 1}]) == [
            exactjson.TOO_BIG,
            {"a": exactjson.TOO_BIG},
        ]

    def test_a_process_without_a_digit_limit_writes_nothing_that_others_cannot_read(self) -> None:
        before = sys.get_int_max_str_digits()
        sys.set_int_max_str_digits(0)
        try:
            assert exactjson.clean([10**5000]) == [exactjson.TOO_BIG]
        finally:
            sys.set_int_max_str_digits(before)

    def test_keys_become_strings_as_json_writes_them(self) -> None:
        cleaned = exactjson.clean({False: 1, None: 2, 3: 4, 1.5: 5, math.inf: 6})
        assert cleaned == {"false": 1, "null": 2, "3": 4, "1.5": 5, "Infinity": 6}

    def test_of_two_keys_that_become_the_same_the_last_wins(self) -> None:
        cleaned = exactjson.clean({1: "a", "1": "b"})
        assert cleaned == {"1": "b"}

    @pytest.mark.parametrize("levels", [100, 101, 5_000, 100_000])
    @pytest.mark.parametrize("work", [exactjson.clean, exactjson.encode])
    def test_nesting_is_cut_at_the_limit_however_deep(self, levels: int, work: Any) -> None:
        value = nested(levels)
        cleaned = work(value)
        assert depth(cleaned) == exactjson.MAX_DEPTH
        assert exactjson.TOO_DEEP in exactjson.dumps(cleaned)

    def test_scalars_in_the_deepest_list_stay(self) -> None:
        value = nested(99, inner=["leaf"])
        assert exactjson.clean(value) is value

    def test_a_value_within_itself_is_refused_by_its_path(self) -> None:
        loop: dict[str, Any] = {"rows": [1]}
        loop["rows"].append({"back": loop})
        with pytest.raises(NotJSONError, match=r"^value\.rows\[1\]\.back contains itself"):
            exactjson.clean(loop)

    def test_one_object_in_two_places_is_no_cycle(self) -> None:
        shared = [math.nan]
        assert exactjson.clean({"a": shared, "b": shared}) == {"a": ["NaN"], "b": ["NaN"]}

    def test_subclasses_become_json_s_own_types(self) -> None:
        cleaned = exactjson.clean([mark_safe("<b>"), OrderedDict(a=(1, 2))])
        assert cleaned == ["<b>", {"a": [1, 2]}]
        assert [type(part) for part in cleaned] == [str, dict]

    def test_other_types_are_sent_to_the_encoder(self) -> None:
        with pytest.raises(NotJSONError, match=r"^value\[0\] is a decimal\.Decimal, which is not JSON\."):
            exactjson.clean([decimal.Decimal(1)])

    def test_a_clean_value_costs_about_one_dump(self) -> None:
        value = [{"role": "user", "content": [{"type": "text", "text": "word " * 40}]} for _ in range(2_000)]

        def best(work: Any) -> float:
            times = []
            for _ in range(5):
                start = time.perf_counter()
                work(value)
                times.append(time.perf_counter() - start)
            return min(times)

        assert best(exactjson.clean) < 6 * best(exactjson.dumps)


class Color(enum.Enum):
    RED = "red"
    PAIR = (1, decimal.Decimal("2.5"))


class Level(enum.IntEnum):
    HIGH = 3


@dataclasses.dataclass
class Line:
    sku: str
    price: decimal.Decimal
    parts: list[Any] = dataclasses.field(default_factory=list)


class Order(pydantic.BaseModel):
    number: int
    when: datetime.date
    total: decimal.Decimal = decimal.Decimal("9.90")


Point = namedtuple("Point", "x y")


class TestEncoding:
    @pytest.mark.parametrize(
        ("value", "encoded"),
        [
            (datetime.datetime(2026, 12, 1, 9, 30, tzinfo=datetime.UTC), "2026-12-01T09:30:00+00:00"),
            (datetime.date(2026, 12, 1), "2026-12-01"),
            (datetime.time(9, 30), "09:30:00"),
            (datetime.timedelta(days=1, hours=2, milliseconds=5), "P1DT02H00M00.005000S"),
            (datetime.timedelta(seconds=-1), "-P0DT00H00M01S"),
            (decimal.Decimal("10.50"), "10.50"),
            (decimal.Decimal("NaN"), "NaN"),
            (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
            (pathlib.PurePosixPath("a/b"), "a/b"),
            (Color.RED, "red"),
            (Color.PAIR, [1, "2.5"]),
            (Level.HIGH, 3),
            (gettext_lazy("Yes"), "Yes"),
            (Line("x", decimal.Decimal(1)), {"sku": "x", "price": "1", "parts": []}),
            (
                Order(number=1, when=datetime.date(2026, 1, 2)),
                {"number": 1, "when": "2026-01-02", "total": "9.90"},
            ),
            (pydantic.RootModel[list[int]]([1]), [1]),
            (Point(1, 2), [1, 2]),
            (deque([1]), [1]),
            (range(3), [0, 1, 2]),
            ({"a": 1}.values(), [1]),
            (UserDict(a=UserDict()), {"a": {}}),
            ({3, 1, 2}, [1, 2, 3]),
            (frozenset({"b", "a"}), ["a", "b"]),
            ({Color.RED: 1, datetime.date(2026, 1, 1): 2}, {"red": 1, "2026-01-01": 2}),
        ],
    )
    def test_python_values_have_one_json_form(self, value: Any, encoded: Any) -> None:
        result = exactjson.encode(value)
        assert result == encoded
        assert exactjson.clean(result) is result

    def test_a_set_of_mixed_values_has_one_order(self) -> None:
        assert exactjson.encode({"a", 1, None, ("x",)}) == exactjson.encode({("x",), None, 1, "a"})

    def test_strings_made_while_encoding_are_cleaned_too(self) -> None:
        assert exactjson.encode(Line("\0\ud800", decimal.Decimal(1)))["sku"] == "\ufffd\ufffd"

    @pytest.mark.parametrize(
        ("value", "message"),
        [
            (
                Group(name="x"),
                "result is a model instance (auth.Group). Use a dict of the fields the agent needs.",
            ),
            (
                SimpleLazyObject(lambda: Group(name="x")),
                "result is a model instance (auth.Group). Use a dict of the fields the agent needs.",
            ),
            (
                Group.objects.none(),
                (
                    "result is a QuerySet. Use a list of plain values, for example "
                    "list(queryset.values('id', 'name'))."
                ),
            ),
            ((n for n in [1]), "result is a generator, which can be read only once. Use a list."),
            (
                b"x",
                "result is bytes. Use text (decode it), or base64 text inside an image or document block.",
            ),
            (object(), "result is an object. Use strings, numbers, lists and dicts."),
            (Line, "result is the class Line. Use a value."),
        ],
        ids=["model", "lazy model", "queryset", "generator", "bytes", "object", "class"],
    )
    def test_everything_else_is_refused_with_what_to_use(self, value: Any, message: str) -> None:
        with pytest.raises(NotJSONError) as caught:
            exactjson.encode(value, path="result")
        assert caught.value.message == message
        assert caught.value.path == "result"

    def test_the_path_leads_to_the_place(self) -> None:
        value = {"order": Line("x", decimal.Decimal(1), parts=[1, {"the key": [{}, object()]}])}
        with pytest.raises(
            NotJSONError, match=r'^result\.order\.parts\[1\]\["the key"\]\[1\] is an object\.'
        ):
            exactjson.encode(value, path="result")

    def test_a_key_without_text_is_refused(self) -> None:
        with pytest.raises(
            NotJSONError, match=r"^value\.a has a key that is a tuple\. Use strings as keys\.$"
        ):
            exactjson.encode({"a": {(1, 2): 3}})

    def test_a_model_that_cannot_dump_itself_is_refused(self) -> None:
        class Broken(pydantic.BaseModel):
            x: int = 1

            @pydantic.field_serializer("x")
            def serialize(self, value: int) -> int:
                raise RuntimeError("no")

        with pytest.raises(NotJSONError, match=r"^value\.a could not be dumped"):
            exactjson.encode({"a": Broken()})

    def test_coroutines_are_refused(self) -> None:
        async def work() -> None: ...

        coroutine = work()
        with pytest.raises(NotJSONError, match="that nothing awaited"):
            exactjson.encode(coroutine)
        coroutine.close()


class TestDigest:
    def test_key_order_does_not_matter_and_list_order_does(self) -> None:
        assert (
            exactjson.canonical({"b": 1, "a": 2}) == '{"a":2,"b":1}' == exactjson.canonical({"a": 2, "b": 1})
        )
        assert exactjson.digest([1, 2]) != exactjson.digest([2, 1])

    @given(json_like)
    @settings(max_examples=50)
    def test_it_is_the_same_before_and_after_storage(self, value: Any) -> None:
        live = exactjson.clean(value)
        stored = exactjson.loads(exactjson.dumps(live))
        assert exactjson.digest("run", live) == exactjson.digest("run", stored)

    def test_parts_do_not_run_into_one_another(self) -> None:
        assert exactjson.digest("ab", "c") != exactjson.digest("a", "bc")
        assert len(exactjson.digest()) == 64


def test_importing_it_needs_no_database_and_no_settings() -> None:
    code = "import sys, anvil_django.exactjson; sys.exit('django.db' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
