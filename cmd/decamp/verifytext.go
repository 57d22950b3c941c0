package main

import (
	"fmt"
)

// writeVerified prints what was found, bad chunks included.
func (a *app) writeVerified(folder string, found []verified, bad error) error {
	if a.json {
		return a.print(struct {
			Folder string     `json:"folder"`
			OK     bool       `json:"ok"`
			Images []verified `json:"images"`
		}{folder, bad == nil, append([]verified{}, found...)})
	}
	for _, v := range found {
		a.writeVerifiedImage(v)
	}
	if bad == nil {
		fmt.Fprintf(a.out, "%s is what was copied.\n", folder)
	}
	return nil
}

func (a *app) writeVerifiedImage(v verified) {
	if v.Changed != "" {
		fmt.Fprintf(a.out, "%s: changed since it was published, in %d of %d MiB chunks: as expected after a start\n\n", v.File, v.BadChunks, v.Chunks)
		return
	}
	for _, b := range v.Bad {
		fmt.Fprintf(a.out, "BAD  disk %s at %d, %s: expected %v, seen %v\n", b.Disk, b.Off, size(b.Len), b.Want, b.Got)
	}
	if v.BadChunks > 0 {
		fmt.Fprintf(a.out, "%s: %d of %d MiB chunks are not what was copied\n\n", v.File, v.BadChunks, v.Chunks)
		return
	}
	t := newTable(v.File, "")
	t.add("  compared", fmt.Sprintf("%s in %d chunks, read from %s", size(v.Bytes), v.Chunks, v.Medium))
	t.add("  root", v.Root.String())
	t.add("  sha256", v.SHA256)
	t.add("  md5", v.MD5)
	if v.Reread != nil {
		t.add("  source re-read", v.Reread.String())
	}
	for _, file := range v.Audit {
		t.add("  written", file)
	}
	t.write(a.out)
	fmt.Fprintln(a.out)
}
