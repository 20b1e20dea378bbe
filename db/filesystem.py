from __future__ import annotations

from pathlib import Path

# Seen by several machines or by a host outside this kernel: SQLite's shared-memory WAL breaks on them.
SHARED = frozenset(
    {
        "nfs",
        "nfs4",
        "cifs",
        "smb3",
        "smbfs",
        "lustre",
        "gpfs",
        "beegfs",
        "ceph",
        "afs",
        "9p",
        "orangefs",
        "pvfs2",
        "panfs",
        "wekafs",
        "virtiofs",
        "vboxsf",
        "prl_fs",
        "drvfs",
        "acfs",
        "ocfs2",
        "gfs2",
        "glusterfs",
        "daos",
    }
)
LOCAL_FUSE = frozenset({"fuseblk", "fuse.ntfs-3g"})


def file_system(path: Path) -> str:
    """Type of the file system that holds `path` (`ext4`, `nfs4`, …); "" where the kernel doesn't tell."""
    try:
        text = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
        return parse_mounts(text, path.resolve())
    except OSError:
        return ""


def parse_mounts(mountinfo: str, path: Path) -> str:
    """The type in `mountinfo` of the longest mount point above `path`; of equal ones the last mounted."""
    best, kind = -1, ""
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        fields, types = left.split(" "), right.split(" ")
        if len(fields) < 5:
            continue
        point = Path(_unescape(fields[4]))
        if path.is_relative_to(point) and len(point.parts) >= best:
            best, kind = len(point.parts), types[0]
    return kind


def is_shared(kind: str) -> bool:
    """Whether other machines may have files of this file-system type open."""
    return kind in SHARED or (kind.startswith("fuse") and kind not in LOCAL_FUSE)


def _unescape(text: str) -> str:
    for octal, char in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(octal, char)
    return text
