package change

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What a plan or a transaction's file says of attributes is what is read from it,
// whatever bytes a name has.
func TestAttributesSurviveTheirText(t *testing.T) {
	want := Entry{Type: Regular, Xattrs: map[string][]byte{
		"user.plain": []byte("v"), "user.empty": {}, "user.\xff": {0, 0xff}, "user.\xfe": []byte("other"),
		`user.back\slash`: []byte("b"), `user.\x41`: []byte("c"), "user.new\nline \x1b[31m": []byte("n"), "user.ü": []byte("u"),
	}}
	b, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var got Entry
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" || !got.Same(&want) {
		t.Errorf("entry (-written +read):\n%s\n%s", d, b)
	}
	if b, err = json.Marshal(Entry{Type: Fifo}); err != nil || string(b) != `{"type":"fifo","mode":0,"uid":0,"gid":0}` {
		t.Errorf("entry without attributes: %s, %v", b, err)
	}
}
