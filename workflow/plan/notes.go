package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/netsandbox/netsandbox/backends/change"
)

// large is the size above which the price of a copy is worth a line.
const large = 100 << 20

// Notes says what changes do beyond the lines that list them: to hard links and
// their other names, and to space.
func Notes(cs []change.Change) []string {
	return slices.Concat(joined(cs), parted(cs), copied(cs))
}

// LabelNote says what becomes of security labels; it is for hosts whose files
// have them.
func LabelNote(cs []change.Change) string {
	return fmt.Sprintf("%s the security label of the place, not the one of the view; no policy that enforces labels was tested with it",
		counted(len(cs), "changed path takes", "changed paths take"))
}

// joined names what becomes one file, or stays it.
func joined(cs []change.Change) []string {
	byPath := map[change.Path]change.Change{}
	groups := map[change.Path][]change.Change{}
	for _, c := range cs {
		byPath[c.Path] = c
		if c.New != nil && c.New.Link != "" {
			groups[c.New.Link] = append(groups[c.New.Link], c)
		}
	}
	var notes []string
	for _, first := range slices.Sorted(maps.Keys(groups)) {
		group := append([]change.Change{byPath[first]}, groups[first]...)
		names := []string{first.String()}
		stays := true
		for _, c := range group[1:] {
			names = append(names, c.Path.String())
			stays = stays && oneFile(group[0].Old, c.Old)
		}
		verb := "become"
		if stays {
			verb = "stay"
		}
		notes = append(notes, fmt.Sprintf("%s %s one file", enumerated(names), verb))
	}
	return notes
}

// parted names what was one file on the host and is not one any more. The view
// shows it so already: overlayfs copies up one name, and leaves the others what
// they were.
func parted(cs []change.Change) []string {
	var notes []string
	seen := map[change.Identity]bool{}
	for _, c := range cs {
		if c.Old == nil || c.Old.Type != change.Regular || c.Old.Links < 2 {
			continue
		}
		names := []change.Change{c}
		if c.Old.ID != nil {
			if seen[object(c.Old.ID)] {
				continue
			}
			seen[object(c.Old.ID)] = true
			names = sameObject(cs, c)
		}
		notes = append(notes, separated(names)...)
		if others := int(c.Old.Links) - len(names); others > 0 {
			notes = append(notes, abandoned(names, others)...)
		}
	}
	return notes
}

// sameObject are the changes of names that are one file on the host.
func sameObject(cs []change.Change, c change.Change) []change.Change {
	var names []change.Change
	for _, o := range cs {
		if o.Path == c.Path || oneFile(o.Old, c.Old) {
			names = append(names, o)
		}
	}
	return names
}

// separated names those of one file that are to be different ones.
func separated(names []change.Change) []string {
	var paths []string
	wanted := map[change.Path]bool{}
	for _, c := range names {
		if c.New == nil || c.New.Type != change.Regular {
			continue
		}
		paths = append(paths, c.Path.String())
		if c.New.Link != "" {
			wanted[c.New.Link] = true
		} else {
			wanted[c.Path] = true
		}
	}
	if len(wanted) < 2 {
		return nil
	}
	return []string{enumerated(paths) + " are one file on the host and become different files"}
}

// abandoned says what the names keep that no change lists.
func abandoned(names []change.Change, others int) []string {
	var notes []string
	for _, c := range names {
		kept := "content"
		if metadataOnly(c) {
			kept = "mode, owner and attributes"
		}
		notes = append(notes, fmt.Sprintf("%s is one file with %s the old %s",
			c.Path, counted(others, "other name on the host, which keeps", "other names on the host, which keep"), kept))
	}
	return notes
}

// copied names what takes space for bytes that do not change: an object is
// replaced whole, and the original stays as backup.
func copied(cs []change.Change) []string {
	var notes []string
	for _, c := range cs {
		if metadataOnly(c) && c.New.Link == "" && c.New.Size > large && !c.Old.Same(c.New) {
			notes = append(notes, fmt.Sprintf("%s is %s and is copied whole, although only its mode, owner or attributes change", c.Path, change.Size(c.New.Size)))
		}
	}
	return notes
}

// metadataOnly reports a regular file that keeps its bytes.
func metadataOnly(c change.Change) bool {
	return c.Old != nil && c.New != nil && c.Old.Type == change.Regular && c.New.Type == change.Regular && c.New.SHA256 == c.Old.SHA256
}

// oneFile reports two origins that are names of one object.
func oneFile(a, b *change.Entry) bool {
	return a != nil && b != nil && a.ID != nil && b.ID != nil && object(a.ID) == object(b.ID)
}

// object is an identity without the moment.
func object(id *change.Identity) change.Identity { return change.Identity{Dev: id.Dev, Ino: id.Ino} }

// enumerated renders names as a sentence does, the first of many.
func enumerated(names []string) string {
	const most = 4
	if len(names) > most {
		names = append(slices.Clone(names[:most-1]), counted(len(names)-most+1, "more name", "more names"))
	}
	last := len(names) - 1
	if last == 0 {
		return names[0]
	}
	return strings.Join(names[:last], ", ") + " and " + names[last]
}

func counted(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
