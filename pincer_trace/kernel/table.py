"""The one table of system calls: number, name and disposition of each.

It drives the filter (filter.py), the dispatch of notifications (gateway), the documents and the tests. A number that is
not here is answered ENOSYS, as a kernel without it would (hazard P33), so a new kernel opens no door.

Dispositions:

* `allow`: no round trip; the call has no effect on names or others, or the kernel floor refuses what it could do.
* `notify:STAGE`: the supervisor performs it, or lets it run for a stated reason; STAGE names the handler.
* `refuse:ERRNO`: answered in the filter. ENOSYS where programs fall back as on an older kernel, EPERM elsewhere.
* `registers`: allowed but for the cases in `REGISTER_RULES`, which look at register values only; for ioctls of file
  systems, which are refused but for those in `FILE_SYSTEM_IOCTLS`; and for sockets that are not in `SOCKETS`.
"""

from __future__ import annotations

AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}  # <linux/audit.h>
X32_BIT = 0x40000000

# name, x86_64 number, aarch64 number (asm/unistd_64.h, asm-generic/unistd.h; Linux 6.18), disposition
_TABLE = """
read 0 63 allow
write 1 64 allow
open 2 - notify:open
close 3 57 allow
stat 4 - allow
fstat 5 80 allow
lstat 6 - allow
poll 7 - allow
lseek 8 62 allow
mmap 9 222 allow
mprotect 10 226 allow
munmap 11 215 allow
brk 12 214 allow
rt_sigaction 13 134 allow
rt_sigprocmask 14 135 allow
rt_sigreturn 15 139 allow
ioctl 16 29 registers
pread64 17 67 allow
pwrite64 18 68 allow
readv 19 65 allow
writev 20 66 allow
access 21 - allow
pipe 22 - allow
select 23 - allow
sched_yield 24 124 allow
mremap 25 216 allow
msync 26 227 allow
mincore 27 232 allow
madvise 28 233 allow
shmget 29 194 notify:sysv
shmat 30 196 notify:sysv
shmctl 31 195 notify:sysv
dup 32 23 allow
dup2 33 - allow
pause 34 - allow
nanosleep 35 101 allow
getitimer 36 102 allow
alarm 37 - allow
setitimer 38 103 allow
getpid 39 172 allow
sendfile 40 71 allow
socket 41 198 registers
connect 42 203 notify:connect
accept 43 202 allow
sendto 44 206 registers
recvfrom 45 207 allow
sendmsg 46 211 registers
recvmsg 47 212 allow
shutdown 48 210 allow
bind 49 200 notify:bind
listen 50 201 allow
getsockname 51 204 allow
getpeername 52 205 allow
socketpair 53 199 registers
setsockopt 54 208 registers
getsockopt 55 209 allow
clone 56 220 registers
fork 57 - allow
vfork 58 - allow
execve 59 221 notify:exec
exit 60 93 allow
wait4 61 260 allow
kill 62 129 allow
uname 63 160 allow
semget 64 190 notify:sysv
semop 65 193 notify:sysv
semctl 66 191 notify:sysv
shmdt 67 197 allow
msgget 68 186 notify:sysv
msgsnd 69 189 notify:sysv
msgrcv 70 188 notify:sysv
msgctl 71 187 notify:sysv
fcntl 72 25 registers
flock 73 32 allow
fsync 74 82 allow
fdatasync 75 83 allow
truncate 76 45 notify:truncate
ftruncate 77 46 allow
getdents 78 - allow
getcwd 79 17 allow
chdir 80 49 notify:directory
fchdir 81 50 notify:directory
rename 82 - notify:rename
mkdir 83 - notify:mkdir
rmdir 84 - notify:unlink
creat 85 - notify:open
link 86 - notify:link
unlink 87 - notify:unlink
symlink 88 - notify:symlink
readlink 89 - allow
chmod 90 - notify:chmod
fchmod 91 52 notify:chmod
chown 92 - notify:chown
fchown 93 55 notify:chown
lchown 94 - notify:chown
umask 95 166 notify:umask
gettimeofday 96 169 allow
getrlimit 97 163 allow
getrusage 98 165 allow
sysinfo 99 179 allow
times 100 153 allow
ptrace 101 117 allow
getuid 102 174 allow
syslog 103 116 refuse:EPERM
getgid 104 176 allow
setuid 105 146 notify:identity
setgid 106 144 notify:identity
geteuid 107 175 allow
getegid 108 177 allow
setpgid 109 154 allow
getppid 110 173 allow
getpgrp 111 - allow
setsid 112 157 allow
setreuid 113 145 notify:identity
setregid 114 143 notify:identity
getgroups 115 158 allow
setgroups 116 159 notify:identity
setresuid 117 147 notify:identity
getresuid 118 148 allow
setresgid 119 149 notify:identity
getresgid 120 150 allow
getpgid 121 155 allow
setfsuid 122 151 notify:identity
setfsgid 123 152 notify:identity
getsid 124 156 allow
capget 125 90 allow
capset 126 91 notify:identity
rt_sigpending 127 136 allow
rt_sigtimedwait 128 137 allow
rt_sigqueueinfo 129 138 allow
rt_sigsuspend 130 133 allow
sigaltstack 131 132 allow
utime 132 - notify:utime
mknod 133 - notify:mknod
uselib 134 - refuse:ENOSYS
personality 135 92 allow
ustat 136 - allow
statfs 137 43 allow
fstatfs 138 44 allow
sysfs 139 - allow
getpriority 140 141 allow
setpriority 141 140 registers
sched_setparam 142 118 registers
sched_getparam 143 121 allow
sched_setscheduler 144 119 registers
sched_getscheduler 145 120 allow
sched_get_priority_max 146 125 allow
sched_get_priority_min 147 126 allow
sched_rr_get_interval 148 127 allow
mlock 149 228 allow
munlock 150 229 allow
mlockall 151 230 allow
munlockall 152 231 allow
vhangup 153 58 refuse:EPERM
modify_ldt 154 - allow
pivot_root 155 41 refuse:EPERM
_sysctl 156 - refuse:ENOSYS
prctl 157 167 registers
arch_prctl 158 - allow
adjtimex 159 171 refuse:EPERM
setrlimit 160 164 allow
chroot 161 51 refuse:EPERM
sync 162 81 allow
acct 163 89 refuse:EPERM
settimeofday 164 170 refuse:EPERM
mount 165 40 refuse:EPERM
umount2 166 39 refuse:EPERM
swapon 167 224 refuse:EPERM
swapoff 168 225 refuse:EPERM
reboot 169 142 refuse:EPERM
sethostname 170 161 refuse:EPERM
setdomainname 171 162 refuse:EPERM
iopl 172 - refuse:EPERM
ioperm 173 - refuse:EPERM
create_module 174 - refuse:ENOSYS
init_module 175 105 refuse:EPERM
delete_module 176 106 refuse:EPERM
get_kernel_syms 177 - refuse:ENOSYS
query_module 178 - refuse:ENOSYS
quotactl 179 60 refuse:EPERM
nfsservctl 180 42 refuse:ENOSYS
getpmsg 181 - refuse:ENOSYS
putpmsg 182 - refuse:ENOSYS
afs_syscall 183 - refuse:ENOSYS
tuxcall 184 - refuse:ENOSYS
security 185 - refuse:ENOSYS
gettid 186 178 allow
readahead 187 213 allow
setxattr 188 5 notify:xattr
lsetxattr 189 6 notify:xattr
fsetxattr 190 7 notify:xattr
getxattr 191 8 allow
lgetxattr 192 9 allow
fgetxattr 193 10 allow
listxattr 194 11 allow
llistxattr 195 12 allow
flistxattr 196 13 allow
removexattr 197 14 notify:xattr
lremovexattr 198 15 notify:xattr
fremovexattr 199 16 notify:xattr
tkill 200 130 allow
time 201 - allow
futex 202 98 allow
sched_setaffinity 203 122 registers
sched_getaffinity 204 123 allow
set_thread_area 205 - refuse:ENOSYS
io_setup 206 0 allow
io_destroy 207 1 allow
io_getevents 208 4 allow
io_submit 209 2 allow
io_cancel 210 3 allow
get_thread_area 211 - refuse:ENOSYS
lookup_dcookie 212 18 refuse:ENOSYS
epoll_create 213 - allow
epoll_ctl_old 214 - refuse:ENOSYS
epoll_wait_old 215 - refuse:ENOSYS
remap_file_pages 216 234 allow
getdents64 217 61 allow
set_tid_address 218 96 allow
restart_syscall 219 128 allow
semtimedop 220 192 notify:sysv
fadvise64 221 223 allow
timer_create 222 107 allow
timer_settime 223 110 allow
timer_gettime 224 108 allow
timer_getoverrun 225 109 allow
timer_delete 226 111 allow
clock_settime 227 112 refuse:EPERM
clock_gettime 228 113 allow
clock_getres 229 114 allow
clock_nanosleep 230 115 allow
exit_group 231 94 allow
epoll_wait 232 - allow
epoll_ctl 233 21 allow
tgkill 234 131 allow
utimes 235 - notify:utime
vserver 236 - refuse:ENOSYS
mbind 237 235 allow
set_mempolicy 238 237 allow
get_mempolicy 239 236 allow
mq_open 240 180 notify:queue
mq_unlink 241 181 notify:queue
mq_timedsend 242 182 allow
mq_timedreceive 243 183 allow
mq_notify 244 184 allow
mq_getsetattr 245 185 allow
kexec_load 246 104 refuse:EPERM
waitid 247 95 allow
add_key 248 217 refuse:EPERM
request_key 249 218 refuse:EPERM
keyctl 250 219 refuse:EPERM
ioprio_set 251 30 registers
ioprio_get 252 31 allow
inotify_init 253 - allow
inotify_add_watch 254 27 allow
inotify_rm_watch 255 28 allow
migrate_pages 256 238 registers
openat 257 56 notify:open
mkdirat 258 34 notify:mkdir
mknodat 259 33 notify:mknod
fchownat 260 54 notify:chown
futimesat 261 - notify:utime
newfstatat 262 79 allow
unlinkat 263 35 notify:unlink
renameat 264 38 notify:rename
linkat 265 37 notify:link
symlinkat 266 36 notify:symlink
readlinkat 267 78 allow
fchmodat 268 53 notify:chmod
faccessat 269 48 allow
pselect6 270 72 allow
ppoll 271 73 allow
unshare 272 97 registers
set_robust_list 273 99 allow
get_robust_list 274 100 allow
splice 275 76 allow
tee 276 77 allow
sync_file_range 277 84 allow
vmsplice 278 75 allow
move_pages 279 239 registers
utimensat 280 88 notify:utime
epoll_pwait 281 22 allow
signalfd 282 - allow
timerfd_create 283 85 allow
eventfd 284 - allow
fallocate 285 47 allow
timerfd_settime 286 86 allow
timerfd_gettime 287 87 allow
accept4 288 242 allow
signalfd4 289 74 allow
eventfd2 290 19 allow
epoll_create1 291 20 allow
dup3 292 24 allow
pipe2 293 59 allow
inotify_init1 294 26 allow
preadv 295 69 allow
pwritev 296 70 allow
rt_tgsigqueueinfo 297 240 allow
perf_event_open 298 241 refuse:EPERM
recvmmsg 299 243 allow
fanotify_init 300 262 refuse:EPERM
fanotify_mark 301 263 allow
prlimit64 302 261 registers
name_to_handle_at 303 264 allow
open_by_handle_at 304 265 refuse:EPERM
clock_adjtime 305 266 refuse:EPERM
syncfs 306 267 allow
sendmmsg 307 269 registers
setns 308 268 refuse:EPERM
getcpu 309 168 allow
process_vm_readv 310 270 refuse:EPERM
process_vm_writev 311 271 refuse:EPERM
kcmp 312 272 refuse:EPERM
finit_module 313 273 refuse:EPERM
sched_setattr 314 274 registers
sched_getattr 315 275 allow
renameat2 316 276 notify:rename
seccomp 317 277 registers
getrandom 318 278 allow
memfd_create 319 279 allow
kexec_file_load 320 294 refuse:EPERM
bpf 321 280 refuse:EPERM
execveat 322 281 notify:exec
userfaultfd 323 282 refuse:EPERM
membarrier 324 283 allow
mlock2 325 284 allow
copy_file_range 326 285 allow
preadv2 327 286 allow
pwritev2 328 287 allow
pkey_mprotect 329 288 allow
pkey_alloc 330 289 allow
pkey_free 331 290 allow
statx 332 291 allow
io_pgetevents 333 292 allow
rseq 334 293 allow
pidfd_send_signal 424 424 allow
io_uring_setup 425 425 refuse:ENOSYS
io_uring_enter 426 426 refuse:ENOSYS
io_uring_register 427 427 refuse:ENOSYS
open_tree 428 428 refuse:EPERM
move_mount 429 429 refuse:EPERM
fsopen 430 430 refuse:EPERM
fsconfig 431 431 refuse:EPERM
fsmount 432 432 refuse:EPERM
fspick 433 433 refuse:EPERM
pidfd_open 434 434 allow
clone3 435 435 refuse:ENOSYS
close_range 436 436 allow
openat2 437 437 notify:open
pidfd_getfd 438 438 refuse:EPERM
faccessat2 439 439 allow
process_madvise 440 440 refuse:EPERM
epoll_pwait2 441 441 allow
mount_setattr 442 442 refuse:EPERM
quotactl_fd 443 443 refuse:EPERM
landlock_create_ruleset 444 444 allow
landlock_add_rule 445 445 allow
landlock_restrict_self 446 446 notify:domain
memfd_secret 447 447 allow
process_mrelease 448 448 notify:others
futex_waitv 449 449 allow
set_mempolicy_home_node 450 450 allow
cachestat 451 451 allow
fchmodat2 452 452 notify:chmod
map_shadow_stack 453 453 allow
futex_wake 454 454 allow
futex_wait 455 455 allow
futex_requeue 456 456 allow
statmount 457 457 allow
listmount 458 458 allow
lsm_get_self_attr 459 459 allow
lsm_set_self_attr 460 460 refuse:EPERM
lsm_list_modules 461 461 allow
mseal 462 462 allow
setxattrat 463 463 notify:xattr
getxattrat 464 464 allow
listxattrat 465 465 allow
removexattrat 466 466 notify:xattr
open_tree_attr 467 467 refuse:EPERM
file_getattr 468 468 allow
file_setattr 469 469 notify:attributes
"""

# The same where the command may make mounts of its own. What they are made of is read from memory: the supervisor makes
# new ones, and the newer calls are missing, so that programs fall back to mount(2).
_MOUNTING = {
    **dict.fromkeys(("mount", "umount2", "pivot_root", "chroot"), "notify:mount"),
    **dict.fromkeys(
        ("open_tree", "open_tree_attr", "move_mount", "fsopen", "fsconfig", "fsmount", "fspick", "mount_setattr"),
        "refuse:ENOSYS",
    ),
}


class Syscall:
    """One row: `name`, `number` on this architecture, `disposition`, and the `stage` or errno name after its colon."""

    __slots__ = ("detail", "disposition", "name", "number")

    def __init__(self, name: str, number: int, disposition: str, detail: str) -> None:
        self.name = name
        self.number = number
        self.disposition = disposition
        self.detail = detail


class RegisterRule:
    """`action` (notify:STAGE or refuse:ERRNO) for calls of `name` whose arguments satisfy every condition.

    A condition is (argument index, mask, value, equal): (args[index] & mask) == value, or != where `equal` is False.
    """

    __slots__ = ("action", "conditions", "name")

    def __init__(self, name: str, action: str, *conditions: tuple[int, int, int, bool]) -> None:
        self.name = name
        self.action = action
        self.conditions = conditions


_LOW = 0xFFFFFFFF  # ioctl commands, fcntl commands and pids are 32 bits wide; the high half is noise (P50)


def _low(index: int, value: int) -> tuple[int, int, int, bool]:
    return (index, _LOW, value, True)


def _flag(index: int, flag: int) -> tuple[int, int, int, bool]:
    return (index, flag, flag, True)


def _other_than(index: int, value: int) -> tuple[int, int, int, bool]:
    return (index, 0xFFFFFFFFFFFFFFFF, value, False)


CLONE_FS, CLONE_THREAD, CLONE_NEWNS, CLONE_NEWUSER = 0x200, 0x10000, 0x00020000, 0x10000000
_SECCOMP_SET_MODE_FILTER = 1
_SECCOMP_FILTER_FLAG_NEW_LISTENER = 8
_PR_SET_DUMPABLE, _PR_CAPBSET_DROP, _PR_SET_SECUREBITS, _PR_SET_MM = 4, 24, 28, 35

# ioctls that change an object through a descriptor opened for reading only, or a terminal that is not the worker's
_REFUSED_IOCTLS = {
    0x5412: "EPERM",  # TIOCSTI: types into the terminal (P50)
    0x541C: "EPERM",  # TIOCLINUX
    0x40806685: "EPERM",  # FS_IOC_ENABLE_VERITY: makes a file read-only for ever, on a read-only descriptor
    0x41009432: "EPERM",  # FS_IOC_SETFSLABEL
    0x800C6613: "EPERM",  # FS_IOC_SET_ENCRYPTION_POLICY
    0x50009401: "EPERM",  # BTRFS_IOC_SNAP_CREATE, and its kin: make and remove trees through a directory descriptor
    0x5000940E: "EPERM",  # BTRFS_IOC_SUBVOL_CREATE
    0x5000940F: "EPERM",  # BTRFS_IOC_SNAP_DESTROY
    0x50009417: "EPERM",  # BTRFS_IOC_SNAP_CREATE_V2
    0x50009418: "EPERM",  # BTRFS_IOC_SUBVOL_CREATE_V2
    0x5000943F: "EPERM",  # BTRFS_IOC_SNAP_DESTROY_V2
    0x4008941A: "EPERM",  # BTRFS_IOC_SUBVOL_SETFLAGS
    0x40047211: "EPERM",  # FAT_IOCTL_SET_ATTRIBUTES
}
# Commands of these types go to the file system itself, and what it makes of them is its own affair: they change inode
# numbers, keys, layouts, trees, many of them through a descriptor for reading. Those that are not known are refused.
IOCTL_TYPES = (
    0x66,  # 'f': ext2 to ext4, fscrypt, fsverity, and what began there
    0x76,  # 'v': ext2
    0x58,  # 'X': XFS
    0x94,  # btrfs
    0xF5,  # F2FS
    0xBC,  # bcachefs
)
IOCTL_TYPE_MASK = 0xFF00
IOCTL_UNKNOWN = "ENOTTY"  # as a file system without it
_READING_IOCTLS = (
    0x80086601,  # FS_IOC_GETFLAGS
    0x80046601,  # FS_IOC32_GETFLAGS
    0x80087601,  # FS_IOC_GETVERSION
    0x80047601,  # FS_IOC32_GETVERSION
    0x80086603,  # EXT4_IOC_GETVERSION
    0x801C581F,  # FS_IOC_FSGETXATTR
    0xC020660B,  # FS_IOC_FIEMAP
    0x81009431,  # FS_IOC_GETFSLABEL
    0x400C6615,  # FS_IOC_GET_ENCRYPTION_POLICY
    0xC0096616,  # FS_IOC_GET_ENCRYPTION_POLICY_EX
    0xC080661A,  # FS_IOC_GET_ENCRYPTION_KEY_STATUS
    0x8010661B,  # FS_IOC_GET_ENCRYPTION_NONCE
    0xC0046686,  # FS_IOC_MEASURE_VERITY
    0xC0286687,  # FS_IOC_READ_VERITY_METADATA
    0x8400941F,  # BTRFS_IOC_FS_INFO
    0xD000941E,  # BTRFS_IOC_DEV_INFO
    0xC0109414,  # BTRFS_IOC_SPACE_INFO
    0x80089419,  # BTRFS_IOC_SUBVOL_GETFLAGS
    0x81F8943C,  # BTRFS_IOC_GET_SUBVOL_INFO
    0xD000943D,  # BTRFS_IOC_GET_SUBVOL_ROOTREF
    0xD0009412,  # BTRFS_IOC_INO_LOOKUP
    0xD000943E,  # BTRFS_IOC_INO_LOOKUP_USER
    0x80189439,  # BTRFS_IOC_GET_FEATURES
    0xD0009411,  # BTRFS_IOC_TREE_SEARCH
    0xC0709411,  # BTRFS_IOC_TREE_SEARCH_V2
)
_SHARING_IOCTLS = (  # need a descriptor for writing, which was judged; or share what is equal already
    0x40049409,  # FICLONE
    0x4020940D,  # FICLONERANGE
    0xC0189436,  # FIDEDUPERANGE
)
TIOCGPTPEER = 0x5441
FS_IOC_SETFLAGS, FS_IOC32_SETFLAGS, FS_IOC_FSSETXATTR = 0x40086602, 0x40046602, 0x401C5820
FS_IOC_SETVERSION, FS_IOC32_SETVERSION = 0x40087602, 0x40047602
_NOTIFIED_IOCTLS = {
    TIOCGPTPEER: "terminal",
    FS_IOC_SETFLAGS: "attributes",
    FS_IOC32_SETFLAGS: "attributes",
    FS_IOC_FSSETXATTR: "attributes",
    FS_IOC_SETVERSION: "attributes",
    FS_IOC32_SETVERSION: "attributes",
}

FILE_SYSTEM_IOCTLS = frozenset(
    command
    for command in (*_READING_IOCTLS, *_SHARING_IOCTLS, *_REFUSED_IOCTLS, *_NOTIFIED_IOCTLS)
    if (command & IOCTL_TYPE_MASK) >> 8 in IOCTL_TYPES
)
"""The known ones: allowed, or as `REGISTER_RULES` say."""

AF_UNIX, AF_INET, AF_INET6, AF_NETLINK, _AF_TIPC = 1, 2, 10, 16, 30
_STREAM, _DGRAM, _RAW = 1, 2, 3
SOCKET_TYPE_MASK = 0xF  # above are flags
Types = dict[int, tuple[int, ...] | None]
_INET: Types = {
    _STREAM: (0, 6),  # TCP; MPTCP, SCTP and SMC connect past what judges TCP (P71)
    _DGRAM: (0, 17),  # UDP, made by us: by these nothing is sent, for each datagram names its receiver in memory (P82)
    _RAW: None,  # the kernel refuses it
}
_INET_UNPOLICED: Types = {**_INET, _DGRAM: (0, 17, 136, 1, 58)}  # UDP, UDP-Lite, and the echo of ICMP
_NETLINK = (0, 4, 15)  # routes, sock_diag, uevents: the kernel answers, and no process
SOCKETS: dict[int, Types | None] = {
    AF_UNIX: None,
    AF_INET: _INET,
    AF_INET6: _INET,
    AF_NETLINK: {_DGRAM: _NETLINK, _RAW: _NETLINK},
}
"""The sockets that there are: types of a family, protocols of a type; None for all. The rest is as in a kernel without
it: nothing judges who is at the other end of AF_VSOCK, AF_PACKET or AF_ALG.
"""
SOCKETS_WITH_UDP: dict[int, Types | None] = {**SOCKETS, AF_INET: _INET_UNPOLICED, AF_INET6: _INET_UNPOLICED}
"""The same for a run whose profile leaves UDP open."""
NO_FAMILY, NO_TYPE, NO_PROTOCOL = "EAFNOSUPPORT", "ESOCKTNOSUPPORT", "EPROTONOSUPPORT"
_MSG_FASTOPEN = 0x20000000

REGISTER_RULES = (
    *(RegisterRule("ioctl", f"refuse:{errno}", _low(1, command)) for command, errno in _REFUSED_IOCTLS.items()),
    *(RegisterRule("ioctl", f"notify:{stage}", _low(1, command)) for command, stage in _NOTIFIED_IOCTLS.items()),
    RegisterRule("fcntl", "refuse:EINVAL", _low(1, 1024)),  # F_SETLEASE would freeze our opens (P73)
    RegisterRule("fcntl", "refuse:EINVAL", _low(1, 1040)),  # F_SETDELEG (Linux 6.19), of directories too
    RegisterRule("prctl", "refuse:0", _low(0, _PR_SET_DUMPABLE), _low(1, 0)),  # answered 0, not done (P92)
    RegisterRule("prctl", "refuse:EPERM", _low(0, _PR_SET_MM)),
    RegisterRule("prctl", "notify:identity", _low(0, _PR_CAPBSET_DROP)),
    RegisterRule("prctl", "notify:identity", _low(0, _PR_SET_SECUREBITS)),  # root may be no root after the next exec
    RegisterRule(  # a listener of the worker's own would win over ours once ours is closed (P5): the native answer
        "seccomp", "refuse:EBUSY", _low(0, _SECCOMP_SET_MODE_FILTER), _flag(1, _SECCOMP_FILTER_FLAG_NEW_LISTENER)
    ),
    # A mount namespace is refused, or it is known from its beginning on: names below its mounts are others (P25).
    *(RegisterRule(name, "notify:identity", _flag(0, flag)) for name in ("clone", "unshare")
      for flag in (CLONE_NEWNS, CLONE_NEWUSER)),
    # A process that shares directory and umask with its parent, and is no thread of it.
    RegisterRule("clone", "notify:identity", (0, CLONE_FS | CLONE_THREAD, CLONE_FS, True)),
    # Datagrams name their receiver in memory: refused, with a record. RAW is another name for DGRAM there (P48).
    *(
        RegisterRule(name, "notify:datagram", _low(0, AF_UNIX), (1, SOCKET_TYPE_MASK, kind, True))
        for name in ("socket", "socketpair")
        for kind in (_DGRAM, _RAW)
    ),
    RegisterRule("socketpair", f"refuse:{NO_FAMILY}", _low(0, _AF_TIPC)),
    *(  # connects without connect (P71)
        RegisterRule(name, "refuse:EOPNOTSUPP", _flag(index, _MSG_FASTOPEN))
        for name, index in (("sendto", 3), ("sendmsg", 2), ("sendmmsg", 3))
    ),
    *(  # packets would go to another host than the one that is connected to, which answers in its place (P71)
        RegisterRule("setsockopt", "refuse:EPERM", _low(1, level), _low(2, option))
        for level, option in ((0, 4), (41, 57), (41, 6))  # IP_OPTIONS, IPV6_RTHDR, IPV6_2292PKTOPTIONS
    ),
    *(  # effects on other processes (P69): pid 0 is the caller itself
        RegisterRule(name, "notify:others", _other_than(index, value))
        for name, index, value in (
            ("prlimit64", 0, 0), ("sched_setparam", 0, 0), ("sched_setscheduler", 0, 0), ("sched_setaffinity", 0, 0),
            ("sched_setattr", 0, 0), ("migrate_pages", 0, 0), ("move_pages", 0, 0),
            ("setpriority", 1, 0), ("setpriority", 0, 0),  # who; and which: 0 is PRIO_PROCESS
            ("ioprio_set", 1, 0), ("ioprio_set", 0, 1),  # 1 is IOPRIO_WHO_PROCESS
        )
    ),
)  # fmt: skip

REGISTER_RULES_WITHOUT_UDP = (
    *REGISTER_RULES,
    *(
        RegisterRule("socket", "notify:datagram", _low(0, family), (1, SOCKET_TYPE_MASK, _DGRAM, True))
        for family in (AF_INET, AF_INET6)
    ),
    *(  # a membership is told to the network, by whatever socket it is asked for: *_ADD_MEMBERSHIP and its kin (P82)
        RegisterRule("setsockopt", "refuse:ENODEV", _low(1, level), _low(2, option))
        for level, options in ((0, (35, 39, 42, 46)), (41, (20, 27, 42, 46)))
        for option in options
    ),
)
"""Those of a run whose profile does not leave UDP open."""


def machine() -> str:
    """The architecture's name as the kernel gives it: `x86_64` or `aarch64`. Raises LookupError for others."""
    import os

    name = os.uname().machine
    if name not in AUDIT_ARCH:
        raise LookupError(name)
    return name


_loaded: dict[tuple[str, bool], dict[int, Syscall]] = {}


def load(architecture: str | None = None, *, mounting: bool = False) -> dict[int, Syscall]:
    """The rows that exist on `architecture` (default: this machine's), by number; `mounting`: for a run that may."""
    key = architecture or machine(), mounting
    if key in _loaded:
        return _loaded[key]
    column = 1 if key[0] == "x86_64" else 2
    rows = {}
    for line in _TABLE.split("\n"):
        if line:
            fields = line.split(" ")
            if fields[column] != "-":
                chosen = _MOUNTING.get(fields[0], fields[3]) if mounting else fields[3]
                disposition, _, detail = chosen.partition(":")
                number = int(fields[column])
                rows[number] = Syscall(fields[0], number, disposition, detail)
    _loaded[key] = rows
    return rows
