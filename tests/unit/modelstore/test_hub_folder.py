"""The local hub's folder: imports that are whole, repeatable and cannot leave what was given."""

import hashlib
import os
import threading

import pytest

from services.modelstore.domain import hub
from services.modelstore.drivers.hub_add import main as hub_add
from services.modelstore.drivers.hub_folder import HubFolder
from shared.errors import InvalidArgument


@pytest.fixture
def source(tmp_path):
    source = tmp_path / "source"
    (source / "sub").mkdir(parents=True)
    (source / "config.json").write_text("{}")
    (source / "sub" / "w.gguf").write_bytes(b"w" * 100)
    (source / ".hidden").write_text("x")
    return source


@pytest.fixture
def folder(tmp_path):
    return HubFolder(tmp_path / "hub")


def test_what_was_imported_is_listed_with_its_hashes_and_served_from_its_place(folder, source):
    commit, files = folder.add(source, "o/n")

    assert folder.holds("o/n")
    assert folder.commit("o/n", "main") == folder.commit("o/n", commit) == commit
    assert folder.files("o/n", commit) == files
    by_path = {file.path: file for file in files}
    assert set(by_path) == {"config.json", "sub/w.gguf"}
    assert by_path["sub/w.gguf"].sha256 == hashlib.sha256(b"w" * 100).hexdigest()
    assert by_path["config.json"].gitsha1 == hashlib.sha1(b"blob 2\0{}").hexdigest()
    assert folder.path("o/n", commit, by_path["sub/w.gguf"]).read_bytes() == b"w" * 100


def test_the_same_content_is_the_same_commit_and_changed_content_another(folder, source):
    first, _ = folder.add(source, "o/n")
    again, _ = folder.add(source, "o/n")
    with (source / "config.json").open("w") as file:
        file.write("[]")
    changed, _ = folder.add(source, "o/n")

    assert first == again != changed
    assert folder.commit("o/n", "main") == changed
    assert folder.commit("o/n", first) == first


def test_editing_a_small_file_in_place_leaves_the_imported_commit_alone(folder, source):
    commit, files = folder.add(source, "o/n")
    with (source / "config.json").open("r+") as file:
        file.write("[]")

    config = next(file for file in files if file.path == "config.json")
    assert folder.path("o/n", commit, config).read_text() == "{}"


def test_large_files_are_linked_not_copied(folder, source):
    (source / "big.safetensors").write_bytes(bytes(2 << 20))
    commit, files = folder.add(source, "o/n")

    big = next(file for file in files if file.path == "big.safetensors")
    assert folder.path("o/n", commit, big).samefile(source / "big.safetensors")


def test_other_revisions_stand_beside_main(folder, source):
    main, _ = folder.add(source, "o/n")
    (source / "more").write_text("1")
    tagged, _ = folder.add(source, "o/n", "v1.0")

    assert folder.commit("o/n", "main") == main
    assert folder.commit("o/n", "v1.0") == tagged
    assert folder.commit("o/n", "v2") is None
    assert folder.commit("o/n", "0" * 40) is None


@pytest.mark.parametrize("target", ["/etc/hostname", "../outside", "gone", "sub/pipe"])
def test_a_link_that_leaves_the_directory_or_leads_nowhere_is_refused(folder, source, target):
    (source.parent / "outside").write_text("secret")
    os.mkfifo(source / "sub" / "pipe")
    (source / "link").symlink_to(target)

    with pytest.raises(InvalidArgument):
        folder.add(source, "o/n")
    assert not folder.holds("o/n")


@pytest.mark.parametrize("target", ["/etc", "sub", "../other"])
def test_a_link_to_a_directory_is_refused_and_not_left_out_silently(folder, source, target):
    (source.parent / "other").mkdir()
    (source / "linked").symlink_to(target, target_is_directory=True)

    with pytest.raises(InvalidArgument, match="linked"):
        folder.add(source, "o/n")


def test_a_link_to_a_file_inside_is_its_content(folder, source):
    (source / "copy.gguf").symlink_to("sub/w.gguf")
    commit, files = folder.add(source, "o/n")

    assert {f.sha256 for f in files if f.path.endswith(".gguf")} == {hashlib.sha256(b"w" * 100).hexdigest()}
    copied = next(f for f in files if f.path == "copy.gguf")
    assert not folder.path("o/n", commit, copied).is_symlink()


def test_an_import_that_failed_leaves_the_repository_unknown_and_nothing_behind(folder, source, tmp_path):
    (source / "zz").symlink_to("/etc/hostname")
    with pytest.raises(InvalidArgument):
        folder.add(source, "o/n")

    assert not folder.holds("o/n")
    assert list((tmp_path / "hub" / "o" / "n").glob(".import-*")) == []


def test_a_killed_import_is_cleaned_up_by_the_next_one(folder, source, tmp_path):
    left = tmp_path / "hub" / "o" / "n" / ".import-left"
    left.mkdir(parents=True)
    (left / "w").write_bytes(b"x")
    assert not folder.holds("o/n")

    folder.add(source, "o/n")

    assert not left.exists()


def test_a_ref_that_leads_nowhere_is_no_revision(folder, source, tmp_path):
    folder.add(source, "o/n")
    refs = tmp_path / "hub" / "o" / "n" / "refs"
    (refs / "empty").write_text("")
    (refs / "lost").write_text("0" * 40)
    (refs / "odd").write_bytes(b"\xff\xfe")

    assert [folder.commit("o/n", name) for name in ("empty", "lost", "odd")] == [None, None, None]


@pytest.mark.parametrize(
    "repository", ["n", "../n", "o/..", "o/../x", "/o/n", "o/n/x", "o//n", ".o/n", "o/.n", "o/n\n", "o/n\0", "", "ö/n"]
)
def test_names_that_are_no_repository_are_refused(folder, source, repository):
    with pytest.raises(InvalidArgument):
        folder.add(source, repository)
    assert not folder.holds(repository)
    assert folder.commit(repository, "main") is None


@pytest.mark.parametrize("revision", ["..", "a/b", "", ".x", "a..b", "x\n", "../../x", "-x"])
def test_names_that_are_no_revision_are_refused(folder, source, revision):
    with pytest.raises(InvalidArgument):
        folder.add(source, "o/n", revision)
    folder.add(source, "o/n")
    assert folder.commit("o/n", revision) is None


@pytest.mark.parametrize("name", [b"a\nb", b"\xff\xfe", b"a\x1b[2J"])
def test_file_names_that_no_manifest_may_have_are_refused(folder, source, name):
    (source / os.fsdecode(name)).write_text("x")

    with pytest.raises(InvalidArgument):
        folder.add(source, "o/n")


def test_an_empty_directory_and_a_file_are_no_models(folder, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("x")

    for given in ("empty", "file", "missing"):
        with pytest.raises(InvalidArgument):
            folder.add(tmp_path / given, "o/n")


def test_readers_and_several_importers_at_once_see_whole_commits_only(folder, source):
    (source / "w.bin").write_bytes(b"0" * 50_000)
    folder.add(source, "o/n")
    stop, wrong, errors = threading.Event(), [], []

    def read():
        while not stop.is_set():
            commit = folder.commit("o/n", "main")
            if commit is None:
                wrong.append("no commit")
                return
            for file in folder.files("o/n", commit):
                content = folder.path("o/n", commit, file).read_bytes()
                if hashlib.sha256(content).hexdigest() != file.sha256:
                    wrong.append(file.path)

    def write(number):
        mine = source.parent / f"source-{number}"
        mine.mkdir()
        try:
            for turn in range(10):
                (mine / "w.bin").write_bytes(f"{turn % 3}".encode() * 50_000)
                folder.add(mine, "o/n")
        except Exception as error:
            errors.append(error)

    readers = [threading.Thread(target=read) for _ in range(2)]
    writers = [threading.Thread(target=write, args=(n,)) for n in range(3)]
    for thread in readers + writers:
        thread.start()
    for thread in writers:
        thread.join()
    stop.set()
    for thread in readers:
        thread.join()

    assert (wrong, errors) == ([], [])


def test_the_command_says_what_it_imported_and_refuses_with_a_sentence(source, tmp_path, capsys):
    words = [str(source), "--repo", "o/n", "--data-dir", str(tmp_path)]

    assert hub_add(words) == 0
    assert capsys.readouterr().out.startswith("o/n@main: 2 files, ")
    assert hub_add([str(source), "--repo", "../n", "--data-dir", str(tmp_path)]) == 1
    assert "OWNER/NAME" in capsys.readouterr().err


def test_small_text_is_named_by_its_git_hash_and_weights_by_sha256():
    small, weights = hub.HubFile("a.json", 2, "s", "g"), hub.HubFile("a.gguf", 2, "s", "g")

    assert (small.etag, weights.etag) == ("g", "s")
    assert "lfs" not in small.entry()
    assert weights.entry()["lfs"] == {"oid": "s", "size": 2, "pointerSize": 134}
    assert hub.HubFile("a.json", 1_000_000, "s", "g").large
