package upper

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"path/filepath"
	"strings"

	"github.com/google/renameio/v2"

	"github.com/netsandbox/netsandbox/backends/internal/regular"
)

// hashKey identifies the content of a file: the same object of the same size,
// unchanged since, has the same bytes.
type hashKey struct {
	dev, ino uint64
	size     uint64
	ctime    int64
}

// hashCache remembers hashes between commands. It may be lost or damaged at any
// time: then the files are read again.
type hashCache struct {
	name  string
	old   map[hashKey]string
	used  map[hashKey]string
	dirty bool
}

// readHashes reads the cache of an environment; a file whose own checksum does
// not match counts as empty.
func readHashes(dir string) *hashCache {
	c := &hashCache{name: filepath.Join(dir, "hashes"), old: map[hashKey]string{}, used: map[hashKey]string{}}
	b, err := regular.Read(c.name)
	if err != nil {
		return c
	}
	sum, body, _ := bytes.Cut(b, []byte{'\n'})
	if string(sum) != checksum(body) {
		return c
	}
	for line := range strings.Lines(string(body)) {
		var k hashKey
		var s string
		if _, err := fmt.Sscanf(line, "%x %x %x %x %s", &k.dev, &k.ino, &k.size, &k.ctime, &s); err == nil {
			c.old[k] = s
		}
	}
	return c
}

func (c *hashCache) get(k hashKey) (string, bool) {
	if s, ok := c.used[k]; ok {
		return s, true
	}
	s, ok := c.old[k]
	if ok {
		c.used[k] = s
	}
	return s, ok
}

func (c *hashCache) put(k hashKey, s string) {
	c.used[k] = s
	c.dirty = true
}

// write keeps the cache for the next command, with prune only what was asked for
// since it was read. It is not synced: losing it costs time, nothing else.
func (c *hashCache) write(prune bool) error {
	if !c.dirty {
		return nil
	}
	if !prune {
		maps.Copy(c.old, c.used)
		c.used = c.old
	}
	var b bytes.Buffer
	for k, s := range c.used {
		fmt.Fprintf(&b, "%x %x %x %x %s\n", k.dev, k.ino, k.size, k.ctime, s)
	}
	body := append([]byte(checksum(b.Bytes())+"\n"), b.Bytes()...)
	if err := renameio.WriteFile(c.name, body, 0o600); err != nil {
		return fmt.Errorf("keep hashes: %w", err)
	}
	return nil
}

func checksum(body []byte) string {
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:])
}
