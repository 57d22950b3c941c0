package esx

import (
	"html"
	"net/url"
	"path"
	"strings"

	"github.com/decamp/decamp/internal/inventory"
)

// parseListing returns the entries of the HTML page that lists a folder. The form of
// the page differs between versions of ESXi. All have one link per entry: its target is
// the URL of the entry, and its text is the name, with a slash after folders. The name
// comes from the target, because the text may be truncated. Links to other places
// (parent folder, sort order) and names that are not valid path elements are ignored.
// So a page cannot make the reader leave the datastore.
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

// longestName limits the search for the text of one link, in bytes.
const longestName = 4 << 10

// nextLink finds the next <a href="target">text</a>, and returns the rest of the page.
// ok is false if there is no further link. A link without a quoted target has an empty
// target.
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

// indexFold is strings.Index without regard to case. needle must be lower-case ASCII.
func indexFold(s, needle string) int {
	for i := 0; i+len(needle) <= len(s); i++ {
		if strings.EqualFold(s[i:i+len(needle)], needle) {
			return i
		}
	}
	return -1
}

// entryOf returns the folder entry of a link, or false if the link is not one.
func entryOf(target, text string) (inventory.File, bool) {
	place, query, _ := strings.Cut(target, "?")
	place, inFolder := strings.CutPrefix(place, "/folder/")
	// The URL of a folder ends with a slash, and its name is the element before.
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
