package hostfiles

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/change"
)

// A file with holes is archived in GNU tar's pax form 0.1, which archive/tar
// reads but does not write: only data, and a record that says where it goes.
// https://www.gnu.org/software/tar/manual/html_node/PAX-0.html
const (
	sparseMap  = "GNU.sparse.map"
	sparseSize = "GNU.sparse.size"
	sparseName = "GNU.sparse.name"
	sparseLen  = "GNU.sparse.numblocks"
)

// mostExtents keeps a map well below the megabyte that readers allow for all
// records of a file. The smallest holes of a file with more are filled.
const mostExtents = 20000

// tarBlock is the unit of a tar file.
const tarBlock = 512

func (a *archiver) addSparse(hdr *tar.Header, fd int, old *change.Entry) error {
	data, err := dataMap(fd, old.Size)
	if err != nil {
		return err
	}
	data = coalesce(data, mostExtents)
	head, stored := sparseHeader(hdr, data)
	if err := a.w.Flush(); err != nil { // what came before, to its last block
		return err
	}
	if _, err := a.raw.Write(head); err != nil {
		return err
	}
	h, at := sha256.New(), int64(0)
	for _, x := range data {
		hashZeros(h, x.off-at)
		if _, err := unix.Seek(fd, x.off, unix.SEEK_SET); err != nil {
			return os.NewSyscallError("lseek", err)
		}
		n, err := passOn(a.raw, h, fd, x.len, a.buf)
		if err != nil {
			return err
		}
		if n < x.len {
			return backends.ErrHostChanged
		}
		at = x.end()
	}
	hashZeros(h, old.Size-at)
	now, err := stat(fd, "")
	if err != nil {
		return err
	}
	if now.size != old.Size || hex.EncodeToString(h.Sum(nil)) != old.SHA256 {
		return backends.ErrHostChanged
	}
	_, err = a.raw.Write(make([]byte, padding(stored)))
	return err
}

// sparseHeader renders the two headers of a file with holes, and says how many
// bytes of data follow.
func sparseHeader(hdr *tar.Header, data []extent) (head []byte, stored int64) {
	var points []string
	for _, x := range append(slices.Clip(data), extent{off: hdr.Size}) { // the end, for a file without data
		points = append(points, strconv.FormatInt(x.off, 10), strconv.FormatInt(x.len, 10))
		stored += x.len
	}
	records := maps.Clone(hdr.PAXRecords)
	records[sparseName] = hdr.Name
	records["mtime"] = paxTime(hdr.ModTime)
	block := ustar("GNUSparseFile.0/data", tar.TypeReg)
	for _, f := range []struct {
		at, width int
		name      string
		value     int64
	}{{100, 8, "", hdr.Mode}, {108, 8, "uid", int64(hdr.Uid)}, {116, 8, "gid", int64(hdr.Gid)}, {124, 12, "size", stored}} {
		if !octal(block[f.at:f.at+f.width], f.value) {
			records[f.name] = strconv.FormatInt(f.value, 10)
		}
	}
	var body bytes.Buffer
	// GNU tar wants to know the number of points before it reads them.
	body.WriteString(paxRecord(sparseSize, strconv.FormatInt(hdr.Size, 10)))
	body.WriteString(paxRecord(sparseLen, strconv.Itoa(len(points)/2)))
	body.WriteString(paxRecord(sparseMap, strings.Join(points, ",")))
	for _, k := range slices.Sorted(maps.Keys(records)) {
		body.WriteString(paxRecord(k, records[k]))
	}
	x := ustar("PaxHeaders.0/data", 'x')
	octal(x[124:136], int64(body.Len()))
	head = append(sealed(x), body.Bytes()...)
	head = append(head, make([]byte, padding(int64(body.Len())))...)
	return append(head, sealed(block)...), stored
}

// ustar begins a header block of POSIX.1-1988.
func ustar(name string, typ byte) []byte {
	b := make([]byte, tarBlock)
	copy(b, name)
	for _, at := range []int{100, 108, 116} {
		octal(b[at:at+8], 0)
	}
	octal(b[124:136], 0)
	octal(b[136:148], 0)
	b[156] = typ
	copy(b[257:], "ustar\x0000")
	return b
}

// octal writes a number into a field and reports that it fits.
func octal(field []byte, n int64) bool {
	s := fmt.Sprintf("%0*o", len(field)-1, n)
	if n < 0 || len(s) >= len(field) {
		return false
	}
	copy(field, s)
	return true
}

// sealed adds the checksum, which counts its own field as blanks.
func sealed(b []byte) []byte {
	copy(b[148:156], "        ")
	sum := int64(0)
	for _, c := range b {
		sum += int64(c)
	}
	octal(b[148:155], sum)
	b[155] = ' '
	return b
}

func padding(n int64) int64 { return -n & (tarBlock - 1) }

// paxRecord is "LENGTH KEY=VALUE\n", where LENGTH counts itself.
func paxRecord(k, v string) string {
	rest := " " + k + "=" + v + "\n"
	n := len(rest)
	for n != len(rest)+len(strconv.Itoa(n)) {
		n = len(rest) + len(strconv.Itoa(n))
	}
	return strconv.Itoa(n) + rest
}

// paxTime is seconds with a fraction; a time before 1970 counts both downwards.
func paxTime(t time.Time) string {
	sec, nsec, sign := t.Unix(), t.Nanosecond(), ""
	if sec < 0 && nsec > 0 {
		sec, nsec = sec+1, int(time.Second)-nsec
	}
	if sec <= 0 && t.Unix() < 0 {
		sec, sign = -sec, "-"
	}
	return fmt.Sprintf("%s%d.%09d", sign, sec, nsec)
}

// dataOf returns the map of a file that was archived with its holes; nil for any
// other.
func dataOf(hdr *tar.Header) ([]extent, error) {
	text, ok := hdr.PAXRecords[sparseMap]
	if !ok {
		return nil, nil
	}
	points := strings.Split(text, ",")
	data := make([]extent, 0, len(points)/2)
	for i := 0; i+1 < len(points); i += 2 {
		off, err := strconv.ParseInt(points[i], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("map of holes: %w", err)
		}
		n, err := strconv.ParseInt(points[i+1], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("map of holes: %w", err)
		}
		if n > 0 {
			data = append(data, extent{off, n})
		}
	}
	return data, nil
}
