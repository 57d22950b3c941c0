package vmdktest

import (
	"cmp"
	"fmt"
	"strings"
)

// Text determines how the descriptor of a layer is written. The zero value writes it as VMware does.
type Text struct {
	CreateType string // default by format
	Parent     string // the parentFileNameHint, if another than the name of the layer below
	ParentCID  string // hex, if another than the parent's CID
	Version    int    // default 1
	Encoding   string // default "UTF-8"; "-" leaves it out
	CRLF       bool   // line ends
	Bare       bool   // no comments, no blank lines, blanks at the ends of lines
	Native     bool   // isNativeSnapshot="yes"
	Offsets    bool   // VMFS extents with an offset, too
	More       string // lines after the header entries
	DDB        string // lines at the end
}

// descriptorText returns the layer's descriptor.
func (l *layer) descriptorText() string {
	var b strings.Builder
	l.writeTextHeader(&b)
	for i, x := range l.Extents {
		b.WriteString(l.extentLine(i, x) + "\n")
	}
	b.WriteString("\n# The Disk Data Base\n#DDB\n\n" + l.ddbText())
	return l.Text.finishText(b.String())
}

// writeTextHeader writes the entries before the extent lines.
func (l *layer) writeTextHeader(b *strings.Builder) {
	fmt.Fprintf(b, "# Disk DescriptorFile\nversion=%d\n", cmp.Or(l.Text.Version, 1))
	if enc := cmp.Or(l.Text.Encoding, "UTF-8"); enc != "-" {
		fmt.Fprintf(b, "encoding=%q\n", enc)
	}
	fmt.Fprintf(b, "CID=%08x\nparentCID=%s\n", l.cid, cmp.Or(l.Text.ParentCID, fmt.Sprintf("%08x", l.parentCID)))
	if l.Text.Native {
		b.WriteString("isNativeSnapshot=\"yes\"\n")
	}
	fmt.Fprintf(b, "createType=\"%s\"\n", cmp.Or(l.Text.CreateType, l.createType()))
	if hint := cmp.Or(l.Text.Parent, l.parent); hint != "" {
		fmt.Fprintf(b, "parentFileNameHint=\"%s\"\n", hint)
	}
	b.WriteString(l.Text.More + "\n# Extent description\n")
}

// createType returns the name that VMware uses for such a disk.
func (l *layer) createType() string {
	switch {
	case l.Format == Stream:
		return "streamOptimized"
	case l.Format == COWD:
		return "vmfsSparse"
	case l.Format == SESparse:
		return "seSparse"
	case l.Format == Sparse && l.isEmbedded():
		return "monolithicSparse"
	case l.Format == Sparse:
		return "twoGbMaxExtentSparse"
	case len(l.Extents) > 1:
		return "twoGbMaxExtentFlat"
	}
	return "vmfs"
}

// extentLine returns the extent line of extent i.
func (l *layer) extentLine(i int, x Extent) string {
	access := map[Format]string{Stream: "RDONLY"}[l.Format]
	words := []string{cmp.Or(x.Access, access, "RW"), fmt.Sprint(x.Sectors), l.extentKeyword(x)}
	if l.extentKeyword(x) != "ZERO" { // the file of a NOACCESS extent is named, but was not made
		words = append(words, `"`+l.fileName(i)+`"`)
	}
	if k := l.extentKeyword(x); k == "FLAT" || l.Format == Flat && (l.Text.Offsets || x.Offset != 0) && k != "ZERO" {
		words = append(words, fmt.Sprint(x.Offset))
	}
	return strings.Join(words, " ")
}

// extentKeyword returns the type in the extent line.
func (l *layer) extentKeyword(x Extent) string {
	if x.Type != "" {
		return x.Type
	}
	switch l.Format {
	case Sparse, Stream:
		return "SPARSE"
	case COWD:
		return "VMFSSPARSE"
	case SESparse:
		return "SESPARSE"
	}
	if len(l.Extents) > 1 {
		return "FLAT"
	}
	return "VMFS"
}

// ddbText returns the entries of the disk data base.
func (l *layer) ddbText() string {
	text := "ddb.adapterType = \"lsilogic\"\nddb.virtualHWVersion = \"14\"\n"
	if l.Format == SESparse {
		text += "ddb.grain = \"8\"\n"
	}
	return text + l.Text.DDB
}

// finishText applies the options that concern all lines.
func (t Text) finishText(text string) string {
	if t.Bare {
		var keep []string
		for line := range strings.Lines(text) {
			if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
				keep = append(keep, line+" \t")
			}
		}
		text = strings.Join(keep, "\n") + "\n"
	}
	if t.CRLF {
		text = strings.ReplaceAll(text, "\n", "\r\n")
	}
	return text
}
