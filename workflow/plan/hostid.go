package plan

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/renameio/v2"
)

// HostID returns what names this machine in plans: a hash, because
// machine-id(5) asks that the id itself not leave the machine. Where there is
// none, a random id is kept in the state directory.
func HostID(state string) (string, error) {
	for _, name := range []string{"/etc/machine-id", filepath.Join(state, "host-id")} {
		b, err := os.ReadFile(name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("read host id: %w", err)
		}
		// systemd writes "uninitialized" into an image that has not booted yet.
		if id := strings.TrimSpace(string(b)); id != "" && id != "uninitialized" {
			return hashed(id), nil
		}
	}
	id := rand.Text()
	if err := renameio.WriteFile(filepath.Join(state, "host-id"), []byte(id+"\n"), 0o600); err != nil {
		return "", fmt.Errorf("keep host id: %w", err)
	}
	return hashed(id), nil
}

func hashed(id string) string {
	sum := sha256.Sum256([]byte("netsandbox/host/v1\x00" + id))
	return hex.EncodeToString(sum[:16])
}
