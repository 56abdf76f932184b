package main

// survival is one row of the table of what survives: what the host has, what a
// view makes of it, and what happens to the host meanwhile. All of them are what
// people type, in the tree that they type it in. $large is a size.
type survival struct {
	name string
	host string
	view string
	// meanwhile is done to the host when the view has been changed. harm is what
	// a tool does that writes over it.
	meanwhile, harm string
	running         string // a program of the host that runs the whole time
	killed          bool   // when a part of it has been done
	peers           peers
}

// peers is what was measured on binpash/try 0.2.0 (as root, with its C programs),
// and read in the source, the tests and the threads of multikernel/sandlock
// (August 2026). A dash where nobody looked, "?" where
// looking did not tell.
type peers struct{ try, sandlock string }

// survivals is the table.
var survivals = []survival{
	{name: "content", host: `echo one > t; echo same > u`, view: `echo longer > t`},
	{name: "content of the same size and time", host: `echo one > t`, view: `echo two > t; touch -d @1000000000 t`},
	{name: "modification time of what changed, to the nanosecond", host: `echo one > t; ln -s t l`, view: `echo two > t; ln -sf ./t l; touch -h -d @1000000007.123456789 t l`},
	{name: "modification time alone", host: `echo one > t`, view: `touch -d @1000000007.123456789 t`},
	{
		name: "deletion", host: `echo one > t; mkdir d; echo one > d/a; echo one > d/b`, view: `rm t d/a`,
		peers: peers{"kept: device or attribute, removed on the host", "kept: a log of deletions, replayed"},
	},
	{
		name: "directory removed and made again", host: `mkdir d; echo old > d/old`, view: `rm -r d; mkdir d; echo new > d/new`,
		peers: peers{"kept since #163", "kept since PR 162"},
	},
	{name: "directory renamed", host: `mkdir -p d/s; echo one > d/s/f`, view: `mv d e`},
	{
		name:  "file, directory and symlink, each over each other",
		host:  `for n in 1 2; do echo one > f$n; ln -s f1 l$n; mkdir d$n; echo in > d$n/in; done`,
		view:  `rm f1; mkdir f1; echo in > f1/in; ln -sf d2 f2; rm -r d1; echo new > d1; rm -r d2; ln -s f1 d2; rm l1; echo new > l1; rm l2; mkdir l2`,
		peers: peers{"kept in all 5 tried", "kept"},
	},
	{
		name: "mode, owner and attribute of a directory only", host: `mkdir -m 755 d; echo one > d/f`, view: `chmod 700 d; chown 7:8 d; setfattr -n user.k -v v d`,
		peers: peers{"**lost**, silently", "?"},
	},
	{name: "mode of a large file only", host: `seq $large | head -c $large > t`, view: `chmod 600 t`},
	{
		name: "hard links made in the view", host: `echo one > t`, view: `ln t u; echo new > v; ln v w`,
		peers: peers{"**lost**: split, silently", "refused or gated (#179)"},
	},
	{
		name: "one name written of a hard-linked pair of the host", host: `echo one > a; ln a b`, view: `echo two >> a`,
		peers: peers{"split, silently", "refused or gated (#179)"},
	},
	{
		name: "hard-linked pair of the host, written and linked again", host: `echo one > a; ln a b`, view: `echo two >> a; ln -f a b`,
		peers: peers{"**lost**: split, silently", "refused or gated (#179)"},
	},
	{
		name: "extended attributes", host: `echo one > t; setfattr -n user.old -v v t`, view: `setfattr -x user.old t; setfattr -n user.new -v v t`,
		peers: peers{"kept", "no code for attributes"},
	},
	{
		name: "ACL, and default ACL", host: `echo one > t; mkdir d`, view: `setfacl -m u:7:rw t; setfacl -m u:7:rwx -d -m g:8:rwx d; echo two > d/inherits`,
		peers: peers{"cannot be set inside: EINVAL", "no code for attributes"},
	},
	{
		name: "capability set after the owner", host: `echo one > t`, view: `echo two > t; chown 7:8 t; setcap cap_net_admin+ep t`,
		peers: peers{"kept, but the owner cannot be set", "no code for attributes"},
	},
	{
		name: "owner, setuid, setgid, sticky", host: `echo one > t; chmod 755 t; mkdir d`, view: `chown 7:8 t; chmod 6755 t; chown 7 d; chmod 3775 d`,
		peers: peers{"cannot be set inside: EINVAL", "owner at best"},
	},
	{
		name: "fifo, new and in place of a file", host: `echo one > t; mkfifo p`, view: `mkfifo -m 622 q; rm t p; mkfifo t`,
		peers: peers{"moved", "kept since PR 210 (hung before, #158)"},
	},
	{
		name: "socket", host: `echo one > t`, view: `echo two > t; python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("s")'`,
		peers: peers{"moved", "kept since PR 210"},
	},
	{name: "device node", host: `echo one > t`, view: `mknod n c 1 3`, peers: peers{"cannot be made inside", "left to the kernel"}},
	{
		name: "holes of a file", host: `echo one > t`, view: `truncate -s $large t; echo end >> t; truncate -s $large u`,
		peers: peers{"kept by a rename, copied to another filesystem", "?"},
	},
	{name: "program that is running", host: `cp /bin/sleep t`, view: `cp /bin/true new; mv new t; cp /bin/true u`, running: "t"},
	{name: "the same, written in place", host: `cp /bin/sleep t`, view: `cat /bin/true > t`, running: "t"},
	{
		name: "names: newline, blank at the end, dash, bytes that are no UTF-8, 255 bytes",
		host: `for n in 'old
line' 'old ' -old "$(printf 'o\377')"; do echo one > "./$n"; done`,
		view: `rm -- 'old
line' 'old ' -old "$(printf 'o\377')"; for n in 'new
line' 'new ' -new "$(printf 'n\377')" $(printf %0255d 7); do echo two > "./$n"; done`,
		peers: peers{"kept by the C programs, by its own word not by the shell ones", "?"},
	},
	{name: "target that is immutable by now, one of two", host: `echo one > a; echo one > t`, view: `echo two > a; echo two > t`, meanwhile: `chattr +i t`},
	{
		name: "file that the host edited meanwhile", host: `echo one > t`, view: `echo two > t`, meanwhile: `echo newer > t`,
		harm: "overwritten", peers: peers{"**overwritten**, exit 0", "**overwritten**: the last writer wins"},
	},
	{
		name: "file that the host deleted meanwhile", host: `echo one > t`, view: `echo two > t`, meanwhile: `rm t`,
		harm: "made again", peers: peers{"**made again**, exit 0", "?"},
	},
	{
		name: "directory that became a symlink on the host meanwhile", host: `mkdir d elsewhere; echo one > d/t; echo other > elsewhere/t`, view: `echo two > d/t`,
		meanwhile: `mv d x; ln -s elsewhere d`, harm: "written over", peers: peers{"–", "no longer followed since PR 114"},
	},
	{
		name: "killed when a part of 1 000 files is done", host: `for n in $(seq 1000); do echo one > $n; done`, view: `for n in $(seq 1000); do echo two > $n; done`,
		killed: true, peers: peers{"after a failure: warns, goes on, no way back", "after a failure: marked as interrupted, layer kept, tried again"},
	},
}
