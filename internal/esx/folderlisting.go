package esx

import (
	"html"
	"net/url"
	"path"
	"strings"

	"github.com/decamp/decamp/internal/inventory"
)

// parseListing reads the links of a folder's page. The page is HTML for people, and its
// form differs between versions; what they share is one link an entry, whose target is
// the entry's URL and whose text is its name, with a slash after folders. The name is
// taken from the target, where the text may be cut short. Links to elsewhere (the parent
// folder, sorting) and names that cannot be in a folder are left out, so that no page can
// lead a reader out of the datastore.
func parseListing(page string) []inventory.File {
	var files []inventory.File
	seen := map[string]bool{}
	for {
		var target, text string
		var ok bool
		if target, text, page, ok = nextLink(page); !ok {
			return files
		}
		f, ok := entryOf(target, text)
		if ok && !seen[f.Name] {
			seen[f.Name] = true
			files = append(files, f)
		}
	}
}

// longestName is how much of a page is looked at for the text of one link, in bytes.
const longestName = 4 << 10

// nextLink finds the next <a href="target">text</a>, and what follows it.
func nextLink(page string) (target, text, rest string, ok bool) {
	const open = "href="
	i := indexFold(page, open)
	if i < 0 || i+len(open) >= len(page) {
		return "", "", "", false
	}
	page = page[i+len(open):]
	quote := page[:1]
	if quote != `"` && quote != "'" {
		return "", "", page, true // no target: the caller skips it
	}
	target, page, ok = strings.Cut(page[1:], quote)
	if !ok {
		return "", "", "", false
	}
	if _, after, found := strings.Cut(page[:min(len(page), longestName)], ">"); found {
		text, _, _ = strings.Cut(after, "<")
	}
	return html.UnescapeString(target), strings.TrimSpace(html.UnescapeString(text)), page, true
}

// indexFold is strings.Index for an ASCII needle in lower case, whatever the case of s.
func indexFold(s, needle string) int {
	for i := 0; i+len(needle) <= len(s); i++ {
		if strings.EqualFold(s[i:i+len(needle)], needle) {
			return i
		}
	}
	return -1
}

// entryOf returns the folder entry that a link stands for.
func entryOf(target, text string) (inventory.File, bool) {
	place, query, _ := strings.Cut(target, "?")
	place, inFolder := strings.CutPrefix(place, "/folder/")
	raw := strings.TrimRight(place, "/")
	name, err := url.PathUnescape(raw[strings.LastIndexByte(raw, '/')+1:])
	inFolder = inFolder && strings.Contains(query, "dsName=")
	folder := strings.HasSuffix(place, "/") || strings.HasSuffix(text, "/")
	parent := strings.HasPrefix(text, "Parent") || text == ".." || text == "../"
	if err != nil || !inFolder || parent || !isName(name) {
		return inventory.File{}, false
	}
	return inventory.File{Name: name, Folder: folder}, true
}

// isName reports whether name can be one element of a path.
func isName(name string) bool {
	return name != "" && name != "." && name != ".." && path.Base(name) == name && !strings.ContainsRune(name, 0)
}
