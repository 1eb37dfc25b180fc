"""Values that no frame can hold are refused with the name of their field; others are not corrupted."""

from __future__ import annotations

import pytest

from sluice.protocol.codec.codec import DecodedFrame, EncodeError, encode_frame
from sluice.protocol.codec.wire import Struct, Value, shorten


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        ({"topics": [{"name": "a"}, {"name": 5}]}, "topics[1].name: not a string: 5"),
        ({"topics": [{"name": None}]}, "topics[0].name: not a string: None"),
        ({"topics": {"name": "a"}}, "topics: not an array: an object"),
        ({"topics": ["a"]}, "topics[0]: not an object: 'a'"),
        ({"topics": [{"name": "a" * 40_000}]}, "topics[0].name: too long: 40000"),
        ({"topics": [{"name": "\ud800"}]}, "topics[0].name: not a string of characters"),
        ({"allowAutoTopicCreation": "yes"}, "allowAutoTopicCreation: not a bool: 'yes'"),
        ({"allowAutoTopicCreation": 256}, "allowAutoTopicCreation: not a bool: 256"),
        ({"topicz": []}, "no such field in this version: 'topicz'"),
        ({"includeClusterAuthorizedOperations": True}, "no such field in this version"),
        ({"_unknownTaggedFields": []}, "no such field in this version"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_with_the_name_of_its_field(
    body: Struct, complaint: str
) -> None:
    header: Struct = {"requestApiKey": 3, "requestApiVersion": 4}
    with pytest.raises(EncodeError) as caught:
        encode_frame("request", 3, 4, DecodedFrame(header, body))
    assert complaint in str(caught.value)
    assert "Metadata request version 4" in str(caught.value)


@pytest.mark.parametrize(
    ("api_key", "version", "body", "complaint"),
    [
        (0, 9, {"acks": 2**15}, "acks: not an int16: 32768"),
        (0, 9, {"acks": True}, "acks: not an integer: True"),
        (
            0,
            9,
            {"topicData": [{"partitionData": [{"records": "abc"}]}]},
            "records: not hex: odd-length string",
        ),
        (
            0,
            9,
            {"topicData": [{"partitionData": [{"records": "a b "}]}]},
            "records: not hex: non-hexadecimal",
        ),
        (
            0,
            9,
            {"topicData": [{"partitionData": [{"records": 7}]}]},
            "records: not a string of hex digits: 7",
        ),
        (0, 13, {"topicData": [{"topicId": "A" * 21 + "B"}]}, "topicData[0].topicId: not a uuid"),
        (0, 13, {"topicData": [{"topicId": "A" * 21 + " "}]}, "topicData[0].topicId: not a uuid"),
        (0, 13, {"topicData": [{"topicId": "A"}]}, "topicData[0].topicId: not a uuid"),
        (1, 12, {"forgottenTopicsData": [{"partitions": [1, "2"]}]}, "partitions: not an array of int32"),
        (1, 12, {"forgottenTopicsData": [{"partitions": [True]}]}, "partitions: not an array of int32"),
        (1, 12, {"clusterId": 5}, "clusterId: not a string: 5"),
        (1, 12, {"_unknownTaggedFields": 1}, "_unknownTaggedFields: not an array: 1"),
        (1, 12, {"_unknownTaggedFields": [{"tag": 0, "hex": ""}]}, "tag 0 is not unknown"),
        (1, 12, {"_unknownTaggedFields": [{"tag": 9, "hex": ""}, {"tag": 9, "hex": ""}]}, "tag 9 is not unk"),
        (1, 12, {"_unknownTaggedFields": [{"tag": -1, "hex": ""}]}, "not a tag and its hex"),
        (1, 12, {"_unknownTaggedFields": [{"tag": 2**31, "hex": ""}]}, "not a tag and its hex"),
        (1, 12, {"_unknownTaggedFields": [{"tag": 9}]}, "not a tag and its hex"),
        (1, 12, {"_unknownTaggedFields": [{"tag": 9, "hex": "a"}]}, "not hex"),
        (1, 12, {"_tagOrder": [1]}, "_tagOrder: does not name each tagged field once"),
        (1, 12, {"_tagOrder": ["x"]}, "_tagOrder: does not name each tagged field once"),
        (1, 12, {"_tagOrder": "1"}, "_tagOrder: does not name each tagged field once"),
        (49, 0, {"entries": [{"ops": [{"value": "NaN:7"}]}]}, "entries[0].ops[0].value: not a float64"),
        (49, 0, {"entries": [{"ops": [{"value": 10**400}]}]}, "entries[0].ops[0].value: not a float64"),
        (49, 0, {"entries": [{"ops": [{"value": None}]}]}, "entries[0].ops[0].value: not a float64: None"),
    ],
)
def test_a_value_of_the_wrong_type_is_refused(
    api_key: int, version: int, body: Struct, complaint: str
) -> None:
    header: Struct = {"requestApiKey": api_key, "requestApiVersion": version}
    with pytest.raises(EncodeError) as caught:
        encode_frame("request", api_key, version, DecodedFrame(header, body))
    assert complaint in str(caught.value)


def test_a_request_is_not_encoded_under_a_header_of_another_api() -> None:
    header: Struct = {"requestApiKey": 1, "requestApiVersion": 4}
    with pytest.raises(EncodeError, match="the header is of api 1 version 4, not 3 version 4"):
        encode_frame("request", 3, 4, DecodedFrame(header, {}))


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        {"header": {}},
        {"header": {}, "body": []},
        {"header": {}, "body": {}, "more": 1},
        {"header": {}, "body": {}, "wideVarints": 3},
        {"header": {}, "body": {}, "wideVarints": [[1]]},
        {"header": {}, "body": {}, "wideVarints": [[1, 6]]},
        {"header": {}, "body": {}, "wideVarints": [[1, "2"]]},
    ],
)
def test_json_of_another_shape_is_no_frame(value: Value) -> None:
    with pytest.raises(EncodeError):
        DecodedFrame.from_json(value)


def test_a_width_too_small_for_its_varint_is_no_reason_to_corrupt_it() -> None:
    topics: Value = [{"name": "t" * 20_000, "topicId": "A" * 22}]
    header: Struct = {"requestApiKey": 3, "requestApiVersion": 12, "clientId": None}
    plain = DecodedFrame(header, {"topics": topics})
    narrow = DecodedFrame(header, {"topics": topics}, ((3, 2),))
    assert encode_frame("request", 3, 12, narrow) == encode_frame("request", 3, 12, plain)


def test_a_value_in_an_error_has_at_most_sixty_characters() -> None:
    assert shorten("x" * 58) == repr("x" * 58)
    assert shorten("x" * 59) == "'" + "x" * 56 + "..."
    assert len(shorten("x" * 59)) == 60
