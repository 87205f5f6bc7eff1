import hashlib

import pytest

from services.modelstore.domain.patterns import keeps
from shared.manifest import SIZE_LIMIT, ManifestError, ManifestFile, build, decode

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


def test_digest_of_known_content_never_changes():
    manifest = build([a_file("a/ü b.bin", 0, "sha256", hashlib.sha256(b"").hexdigest())])

    assert manifest.digest == "sha256:5c8838f0ee47a61a705fa85903b99882910023e1518e4a5704a0d3ccf886b210"


def test_order_of_the_listing_does_not_matter_and_paths_sort_by_bytes():
    files = [a_file("é"), a_file("z"), a_file("a/b"), a_file("a.b")]

    assert build(files).digest == build(files[::-1]).digest
    assert [f.path for f in build(files).files] == ["a.b", "a/b", "z", "é"]


def test_text_reads_back():
    manifest = build([a_file("with space.bin"), a_file("a/b.json", 0, "gitsha1", GIT)])

    assert decode(manifest.text) == manifest


HEADER = b"gpustack-manifest v1\n"
LINE = f"sha256:{SHA} 3 ".encode()


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"gpustack-manifest v2\n",
        HEADER + LINE + b"a",
        HEADER + LINE + b"a\n\n",
        HEADER + LINE + b"b\n" + LINE + b"a\n",
        HEADER + LINE + b"a\n" + LINE + b"a\n",
        HEADER + LINE + b"../a\n",
        HEADER + LINE + b"a\xff\n",
        HEADER + f"sha256:{SHA} 03 a\n".encode(),
        HEADER + f"sha256:{SHA} -3 a\n".encode(),
        HEADER + f"sha256:{SHA} {'9' * 5000} a\n".encode(),
        HEADER + f"sha256:{SHA} \uff13 a\n".encode(),
        HEADER + f"md5:{SHA} 3 a\n".encode(),
        HEADER + f"sha256:{SHA.upper()} 3 a\n".encode(),
        HEADER + b"sha256\n",
    ],
)
def test_only_the_canonical_text_is_read(text):
    with pytest.raises(ManifestError):
        decode(text)


@pytest.mark.parametrize(
    "path",
    [
        "", "/etc/passwd", "../x", "a/../b", "a/./b", "a//b", "a/", "..", ".", "a/..", "a\nb", "a\x00b", "a\x1b[2J",
        "a\rb", "a\tb", "a\x7f", "a\x85b", "\ud800", "a/\udcff", "x" * 256, "ü" * 128, "/".join(["a" * 200] * 11),
        "/".join(["a"] * 1000),
    ],
)  # fmt: skip
def test_path_that_could_leave_the_store_or_break_it_is_refused(path):
    with pytest.raises(ManifestError):
        build([a_file(path)])


@pytest.mark.parametrize(
    "path", ["a..b/w..safetensors", "...", "-rf", "~", "a\\b", "x" * 255, "ü" * 127, "/".join("a" * 64)]
)
def test_unusual_names_that_stay_below_the_tree_are_good(path):
    assert build([a_file(path)]).files[0].path == path


def test_names_that_differ_in_case_alone_are_two_files():
    assert len(build([a_file("Model.bin"), a_file("model.bin")]).files) == 2


@pytest.mark.parametrize("digest", ["A" * 64, "a" * 63, "a" * 65, "z" * 64, "", "*" * 64, "a" * 63 + "\n"])
def test_malformed_hash_is_refused(digest):
    with pytest.raises(ManifestError):
        build([a_file(digest=digest)])


def test_hash_must_have_the_length_of_its_algorithm():
    with pytest.raises(ManifestError):
        build([a_file(algorithm="gitsha1", digest=SHA)])


@pytest.mark.parametrize("sizes", [[-1], [SIZE_LIMIT], [SIZE_LIMIT - 1, SIZE_LIMIT - 1], [10**40]])
def test_sizes_that_no_number_on_the_wire_holds_are_refused(sizes):
    with pytest.raises(ManifestError):
        build([a_file(str(n), size, digest=f"{n:064x}") for n, size in enumerate(sizes)])


def test_one_hash_with_two_sizes_is_refused():
    with pytest.raises(ManifestError, match="another size"):
        build([a_file("a", 3), a_file("b", 4)])


@pytest.mark.parametrize("paths", [["a", "a/b"], ["a/b/c", "a"], ["a", "a"]])
def test_two_things_of_one_name_are_refused(paths):
    with pytest.raises(ManifestError):
        build([a_file(path) for path in paths])


@pytest.mark.parametrize(
    ("path", "allow", "ignore", "kept"),
    [
        ("a/b.gguf", [], [], True),
        ("a/b.gguf", ["*.gguf"], [], True),
        ("a/b.gguf", ["b.gguf"], [], False),
        ("a/b.gguf", ["a/"], [], True),
        ("a/b/c.gguf", ["a/"], [], True),
        ("ab/c.gguf", ["a/"], [], False),
        ("a/b.GGUF", ["*.gguf"], [], False),
        ("a/B.JSON", ["*.json"], [], False),
        ("a/b.json", ["*.json"], [], True),
        ("a/b.gguf", ["*.gguf"], ["a/*"], False),
        ("a/b.gguf", ["*.gguf"], ["a/"], False),
        ("a/b.gguf", [], ["*"], False),
        ("a/b.gguf", ["a?b.gguf"], [], True),
        ("b1.bin", ["b?.bin"], [], True),
        ("b.bin", ["[ab].bin"], [], True),
        ("b.bin", ["[!ab].bin"], [], False),
    ],
)
def test_patterns_are_those_of_the_hub(path, allow, ignore, kept):
    assert keeps(path, allow, ignore) is kept
