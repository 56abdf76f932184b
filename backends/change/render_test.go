package change

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func regular(mode uint32, sum string) *Entry {
	return &Entry{Type: Regular, Mode: mode, SHA256: sum, Size: 2}
}

func TestText(t *testing.T) {
	link := func(to Path) *Entry { return &Entry{Type: Symlink, Mode: 0o777, Target: to} }
	dir := &Entry{Type: Directory, Mode: 0o755}
	for _, tt := range []struct {
		name     string
		c        Change
		old, new string
		want     string
	}{
		{"content", Change{Path: "/f", Old: regular(0o644, "a"), New: regular(0o644, "b")}, "a\n", "b\n", "--- /f\n+++ /f\n@@ -1 +1 @@\n-a\n+b\n"},
		{"mode and owner", Change{Path: "/f", Old: regular(0o644, "a"), New: &Entry{Type: Regular, Mode: 0o4755, UID: 7, SHA256: "a"}}, "", "", "/f: mode 0644 -> 4755 (setuid)\n/f: owner 0:0 -> 7:0\n"},
		{"added", Change{Path: "/f", New: regular(0o600, "a")}, "", "x\n", "/f: new file, mode 0600, owner 0:0\n--- /dev/null\n+++ /f\n@@ -0,0 +1 @@\n+x\n"},
		{"deleted", Change{Path: "/f", Old: regular(0o600, "a")}, "x\n", "", "/f: deleted, was file, mode 0600, owner 0:0\n--- /f\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n"},
		{"no newline at the end", Change{Path: "/f", Old: regular(0o644, "a"), New: regular(0o644, "b")}, "a", "a\n", "--- /f\n+++ /f\n@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+a\n"},
		{"binary", Change{Path: "/f", Old: regular(0o644, "aa"), New: regular(0o644, "bb")}, "\x00\x01", "\x00\x02", "/f: binary content: 2 bytes, sha256 aa -> 2 bytes, sha256 bb\n"},
		{"symlink", Change{Path: "/l", Old: link("/a"), New: link("/b\x1b")}, "", "", "/l: symlink to /a -> /b\\x1b\n"},
		{"directory", Change{Path: "/d", New: dir}, "", "", "/d: new directory, mode 0755, owner 0:0\n"},
		{"file becomes symlink", Change{Path: "/f", Old: regular(0o644, "a"), New: link("/t")}, "a\n", "", "/f: file, mode 0644, owner 0:0 becomes symlink to /t, owner 0:0\n--- /f\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n"},
		{"control bytes", Change{Path: "/\x1b[2J", Old: regular(0o644, "a"), New: regular(0o644, "b")}, "a\tb\\\n", "\x1b]0;x\a\r\xff\u202e\n", "--- /\\x1b[2J\n+++ /\\x1b[2J\n@@ -1 +1 @@\n-a\tb\\\n+\\x1b]0;x\\x07\\x0d\\xff\\xe2\\x80\\xae\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bytesOf := func(e *Entry, s string) []byte {
				if e == nil || e.Type != Regular {
					return nil
				}
				return []byte(s)
			}
			got := Text(tt.c, bytesOf(tt.c.Old, tt.old), bytesOf(tt.c.New, tt.new), false)
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("text (-want +got):\n%s", d)
			}
		})
	}
}

func TestTextOfLargeContent(t *testing.T) {
	c := Change{Path: "/f", Old: regular(0o644, "aa"), New: regular(0o644, "bb")}
	want := "/f: content too large to show: 2 bytes, sha256 aa -> 2 bytes, sha256 bb\n"
	if got := Text(c, []byte("x"), bytes.Repeat([]byte("y"), DiffLimit+1), false); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := Text(c, nil, []byte("x"), false); got != want {
		t.Errorf("a side that was not read: got %q, want %q", got, want)
	}
}

const secret = "MHcCAQEEIBsecretsecret"

func TestKeysAreMasked(t *testing.T) {
	for name, text := range map[string]string{
		"PEM":              "a\n-----BEGIN PRIVATE KEY-----\n" + secret + "\n-----END PRIVATE KEY-----\nb\n",
		"PEM with a type":  "-----BEGIN EC PRIVATE KEY-----\n" + secret + "\n-----END EC PRIVATE KEY-----\n",
		"encrypted":        "-----BEGIN ENCRYPTED PRIVATE KEY-----\n" + secret + "\n-----END ENCRYPTED PRIVATE KEY-----\n",
		"OpenSSH":          "-----BEGIN OPENSSH PRIVATE KEY-----\n" + secret + "\n-----END OPENSSH PRIVATE KEY-----\n",
		"PGP":              "-----BEGIN PGP PRIVATE KEY BLOCK-----\n\n" + secret + "\n-----END PGP PRIVATE KEY BLOCK-----\n",
		"OpenVPN":          "<tls-auth>\n-----BEGIN OpenVPN Static key V1-----\n" + secret + "\n-----END OpenVPN Static key V1-----\n",
		"indented":         "key: |\n  -----BEGIN RSA PRIVATE KEY-----\n  " + secret + "\n  -----END RSA PRIVATE KEY-----\n",
		"on a JSON line":   `{"k":"-----BEGIN PRIVATE KEY-----\n` + secret + `\n-----END PRIVATE KEY-----\n"}` + "\n",
		"without an end":   "-----BEGIN PRIVATE KEY-----\n" + secret + "\n",
		"WireGuard":        "[Interface]\nPrivateKey = " + secret + "\n",
		"WireGuard preset": "presharedkey=" + secret + "\n",
		"two of them":      "-----BEGIN PRIVATE KEY-----\nx\n-----END PRIVATE KEY-----\nmid\n-----BEGIN PRIVATE KEY-----\n" + secret + "\n-----END PRIVATE KEY-----\n",
	} {
		t.Run(name, func(t *testing.T) {
			c := Change{Path: "/k", Old: regular(0o600, "a"), New: regular(0o600, "b")}
			other := strings.ReplaceAll(text, secret, "MHcCAQEEIBanother")
			got := Text(c, []byte(other), []byte(text), false)
			if strings.Contains(got, "secretsecret") || strings.Contains(got, "another") {
				t.Errorf("a key is shown:\n%s", got)
			}
			if !strings.Contains(got, "+") || !strings.Contains(got, "masked, sha256 ") || !strings.HasSuffix(got, "/k: private keys are masked\n") {
				t.Errorf("the change of a key is not shown:\n%s", got)
			}
			if got := Text(c, []byte(other), []byte(text), true); !strings.Contains(got, secret) {
				t.Errorf("asked for, the key is not shown:\n%s", got)
			}
		})
	}
}

func TestMaskingLeavesTheRest(t *testing.T) {
	for _, text := range []string{
		"-----BEGIN CERTIFICATE-----\nabc\n-----END CERTIFICATE-----\n",
		"-----BEGIN PUBLIC KEY-----\nabc\n-----END PUBLIC KEY-----\n",
		"PublicKey = abc\nListenPort = 1\n",
	} {
		if got := MaskKeys([]byte(text)); string(got) != text {
			t.Errorf("%q became %q", text, got)
		}
	}
	in := "before\n-----BEGIN PRIVATE KEY-----\nx\n-----END PRIVATE KEY-----\nbetween\n-----BEGIN PRIVATE KEY-----\ny\n-----END PRIVATE KEY-----\nafter\n"
	got := string(MaskKeys([]byte(in)))
	for _, want := range []string{"before\n", "\nbetween\n", "\nafter\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing from %q", want, got)
		}
	}
}

func TestCommands(t *testing.T) {
	dir := func(mode, uid uint32) *Entry { return &Entry{Type: Directory, Mode: mode, UID: uid} }
	link := func(to Path) *Entry { return &Entry{Type: Symlink, Mode: 0o777, Target: to} }
	owned := &Entry{Type: Regular, Mode: 0o4755, UID: 1, GID: 2, SHA256: "aa", Size: 2}
	for _, tt := range []struct {
		name string
		c    Change
		want []string
	}{
		{"content", Change{Path: "/f", Old: regular(0o644, "aa"), New: regular(0o640, "bb")}, []string{"install -m 0640 -o 0 -g 0 /dev/stdin /f # 2 bytes, sha256 bb"}},
		{"mode", Change{Path: "/etc/x", Old: regular(0o644, "aa"), New: regular(0o600, "aa")}, []string{"chmod 0600 /etc/x"}},
		{"owner keeps setuid", Change{Path: "/f", Old: regular(0o4755, "aa"), New: owned}, []string{"chown 1:2 /f", "chmod 4755 /f"}},
		{"deletions", Change{Path: "/etc/y z", Old: regular(0o644, "aa")}, []string{"rm '/etc/y z'"}},
		{"deleted directory", Change{Path: "/d", Old: dir(0o755, 0)}, []string{"rmdir /d"}},
		{"new directory", Change{Path: "/d", New: dir(0o1777, 5)}, []string{"mkdir -m 1777 /d", "chown 5:0 /d"}},
		{"new symlink", Change{Path: "/l", New: link("../a b")}, []string{"ln -s '../a b' /l"}},
		{"other target", Change{Path: "/l", Old: link("/a"), New: link("/b")}, []string{"ln -sfn /b /l"}},
		{"directory becomes symlink", Change{Path: "/d", Old: dir(0o755, 0), New: link("/e")}, []string{"rmdir /d", "ln -s /e /d"}},
		{"control bytes", Change{Path: "/\x1b", Old: regular(0o644, "aa")}, []string{`rm $'/\033'`}},
		{"new fifo", Change{Path: "/p", New: &Entry{Type: Fifo, Mode: 0o640, UID: 1}}, []string{"mkfifo -m 0640 /p", "chown 1:0 /p"}},
		{"setuid outlives chown", Change{Path: "/p", New: &Entry{Type: Fifo, Mode: 0o4640, UID: 1}}, []string{"mkfifo -m 4640 /p", "chown 1:0 /p", "chmod 4640 /p"}},
		{"file becomes fifo", Change{Path: "/p", Old: regular(0o644, "aa"), New: &Entry{Type: Fifo, Mode: 0o600}}, []string{"rm /p", "mkfifo -m 0600 /p"}},
		{"hard link", Change{Path: "/b", Old: regular(0o644, "aa"), New: &Entry{Type: Regular, SHA256: "aa", Link: "/a b"}}, []string{"ln -f '/a b' /b"}},
		{"hard link for a directory", Change{Path: "/b", Old: dir(0o755, 0), New: &Entry{Type: Regular, SHA256: "aa", Link: "/a"}}, []string{"rmdir /b", "ln -f /a /b"}},
		{"hard link for a symlink", Change{Path: "/b", Old: link("/x"), New: &Entry{Type: Regular, SHA256: "aa", Link: "/a"}}, []string{"ln -f /a /b"}},
		{"holes", Change{Path: "/f", New: &Entry{Type: Regular, Mode: 0o600, SHA256: "aa", Size: 1 << 30, Sparse: true}}, []string{"install -m 0600 -o 0 -g 0 /dev/stdin /f # 1.0 GiB with holes, sha256 aa", "fallocate -d /f"}},
	} {
		if d := cmp.Diff(tt.want, tt.c.Commands()); d != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, d)
		}
	}
}
