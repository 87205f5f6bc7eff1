import hashlib

import pytest

from services.modelstore.domain.patterns import keeps
from shared.manifest import ManifestError, ManifestFile, build, decode

SHA = "a" * 64
GIT = "b" * 40


def a_file(path="model.gguf", size=3, algorithm="sha256", digest=SHA):
    return ManifestFile(path, size, algorithm, digest)


def test_digest_is_the_hash_of_the_documented_text():
    manifest = build([a_file("b.bin"), a_file("a.json", 1, "gitsha1", GIT)])

    text = f"gpustack-manifest v1\ngitsha1:{GIT} 1 a.json\nsha256:{SHA} 3 b.bin\n".encode()
    assert manifest.text == text
    assert manifest.digest == "sha256:" + hashlib.sha256(text).hexdigest()
    assert manifest.size_bytes == 4


def test_order_of_the_listing_does_not_matter_and_paths_sort_by_bytes():
    files = [a_file("é"), a_file("z"), a_file("a/b"), a_file("a.b")]

    assert build(files).digest == build(files[::-1]).digest
    assert [f.path for f in build(files).files] == ["a.b", "a/b", "z", "é"]


def test_text_reads_back():
    manifest = build([a_file("with space.bin"), a_file("a/b.json", 0, "gitsha1", GIT)])

    assert decode(manifest.text) == manifest


@pytest.mark.parametrize(
    "path",
    ["", "/etc/passwd", "../x", "a/../b", "a/./b", "a//b", "a/", "a\nb", "a\x00b", "a\x1b[2J"],
)
def test_path_that_could_leave_the_store_is_refused(path):
    with pytest.raises(ManifestError):
        build([a_file(path)])


def test_hub_names_with_two_dots_inside_a_segment_are_good():
    assert build([a_file("a..b/w..safetensors")]).files


@pytest.mark.parametrize("digest", ["A" * 64, "a" * 63, "z" * 64])
def test_malformed_hash_is_refused(digest):
    with pytest.raises(ManifestError):
        build([a_file(digest=digest)])


def test_file_and_folder_of_one_name_are_refused():
    with pytest.raises(ManifestError):
        build([a_file("a"), a_file("a/b")])


@pytest.mark.parametrize(
    ("path", "allow", "ignore", "kept"),
    [
        ("a/b.gguf", [], [], True),
        ("a/b.gguf", ["*.gguf"], [], True),
        ("a/b.gguf", ["b.gguf"], [], False),
        ("a/b.gguf", ["a/"], [], True),
        ("a/b.GGUF", ["*.gguf"], [], False),
        ("a/b.gguf", ["*.gguf"], ["a/*"], False),
        ("b1.bin", ["b?.bin"], [], True),
        ("b.bin", ["[ab].bin"], [], True),
    ],
    ids=["all", "star-crosses-slash", "whole-path", "folder", "case", "ignore-wins", "question", "set"],
)
def test_patterns_are_those_of_the_hub(path, allow, ignore, kept):
    assert keeps(path, allow, ignore) is kept
