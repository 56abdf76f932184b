package txn

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
)

// Frames. A record is a header of 32 bytes, its JSON, and zeros up to the next
// sector:
//
//	0   magic "nsbt"
//	4   length of the JSON, little-endian
//	8   CRC-32C of bytes 0 to 8
//	12  zero
//	16  first half of SHA-256 over the previous record's whole sum and the JSON
//
// A disk writes a sector whole or not at all, and a header never lies across
// two, so a crash leaves a header that is right or all zero. A wrong one is
// damage, and so is a wrong sum with more behind it: each append is synced
// before the next. Chaining keeps the remains of an older, longer tail from
// being taken for records.
const (
	sector     = 512
	headerSize = 32
	magic      = "nsbt"
	maxRecord  = math.MaxInt32
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sum is the running digest of a log.
type sum [sha256.Size]byte

func (s sum) next(payload []byte) sum {
	h := sha256.New()
	h.Write(s[:])
	h.Write(payload)
	return sum(h.Sum(nil))
}

// frame returns the bytes of one record and the log's digest after it.
func frame(prev sum, payload []byte) ([]byte, sum, error) {
	if len(payload) > maxRecord {
		return nil, sum{}, fmt.Errorf("record of %d bytes is too long", len(payload))
	}
	next := prev.next(payload)
	b := make([]byte, framed(len(payload)))
	copy(b, magic)
	binary.LittleEndian.PutUint32(b[4:], uint32(len(payload)))
	binary.LittleEndian.PutUint32(b[8:], crc32.Checksum(b[:8], castagnoli))
	copy(b[16:headerSize], next[:16])
	copy(b[headerSize:], payload)
	return b, next, nil
}

// framed is the size on disk of a record with n bytes of JSON.
func framed(n int) int { return (headerSize + n + sector - 1) / sector * sector }

// scan calls f with each record of a log and returns where the next one goes and
// the digest up to there. What a crash left of an unfinished append is not an
// error; it is what the next append overwrites.
func scan(log []byte, f func(payload []byte) error) (int64, sum, error) {
	var s sum
	at := 0
	for {
		rest := log[min(at, len(log)):]
		if len(rest) < headerSize || zero(rest[:headerSize]) {
			return int64(at), s, nil
		}
		n := int(binary.LittleEndian.Uint32(rest[4:]))
		if string(rest[:4]) != magic || binary.LittleEndian.Uint32(rest[8:]) != crc32.Checksum(rest[:8], castagnoli) {
			if at == 0 {
				return 0, s, ErrForeign
			}
			return int64(at), s, fmt.Errorf("%w: no record header at byte %d", ErrCorrupt, at)
		}
		end := at + framed(n)
		if len(rest) < headerSize+n {
			return int64(at), s, nil // its end was never written
		}
		payload := rest[headerSize : headerSize+n]
		next := s.next(payload)
		if !bytes.Equal(next[:16], rest[16:headerSize]) {
			if end >= len(log) || zero(log[end:]) {
				return int64(at), s, nil // not all of it was written
			}
			return int64(at), s, fmt.Errorf("%w: checksum of the record at byte %d", ErrCorrupt, at)
		}
		if err := f(payload); err != nil {
			return int64(at), s, err
		}
		at, s = end, next
	}
}

func zero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}
