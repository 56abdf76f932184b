package change

import "encoding/json"

// Xattrs are extended attributes by full name, in the kernel's own bytes. A name
// is bytes like a path's, so its text form is escaped as [Path] says: JSON would
// put U+FFFD for what is no UTF-8, which is another name.
type Xattrs map[string][]byte

// MarshalJSON implements [json.Marshaler]. It escapes by hand because
// encoding/json asks no key of a string type for its text.
func (a Xattrs) MarshalJSON() ([]byte, error) {
	text := make(map[string][]byte, len(a))
	for name, value := range a {
		text[Escape(name)] = value
	}
	return json.Marshal(text)
}

// UnmarshalJSON implements [json.Unmarshaler].
func (a *Xattrs) UnmarshalJSON(b []byte) error {
	var text map[string][]byte
	if err := json.Unmarshal(b, &text); err != nil {
		return err
	}
	*a = make(Xattrs, len(text))
	for name, value := range text {
		name, err := Unescape(name)
		if err != nil {
			return err
		}
		(*a)[name] = value
	}
	return nil
}
