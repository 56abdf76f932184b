package xattr

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestWhatAPlanCarries(t *testing.T) {
	for name, want := range map[string]bool{
		"user.k": true, "user.overlay.origin": true, "trusted.k": true,
		"system.posix_acl_access": true, "system.posix_acl_default": true, "security.capability": true,
		"security.selinux": false, "security.ima": false, "security.SMACK64": false,
		"trusted.overlay.origin": false, "trusted.overlay.overlay.opaque": false,
		"btrfs.compression": false, "system.nfs4_acl": false,
	} {
		if got := Plannable(name); got != want {
			t.Errorf("Plannable(%q) = %v", name, got)
		}
	}
}

func TestCapabilityHasOneForm(t *testing.T) {
	v2 := []byte{1, 0, 0, 2, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
	v3 := append([]byte{1, 0, 0, 3}, append(v2[4:20:20], 0, 0, 0, 0)...)
	foreign := append([]byte{1, 0, 0, 3}, append(v2[4:20:20], 0xe8, 3, 0, 0)...)
	for _, c := range []struct {
		name     string
		in, want []byte
	}{
		{"version 2 stays", v2, v2},
		{"version 3 of the first root is version 2", v3, v2},
		{"version 3 of another root stays", foreign, foreign},
		{"nonsense stays", []byte("x"), []byte("x")},
	} {
		if d := cmp.Diff(c.want, Canonical(Capability, c.in)); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, d)
		}
	}
}
