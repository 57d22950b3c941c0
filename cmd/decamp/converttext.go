package main

import "fmt"

// writeConverted tells what was made and how it was proven.
func (a *app) writeConverted(c converted) error {
	if a.json {
		return a.print(c)
	}
	fmt.Fprintf(a.out, "%s is written.\n", plain(c.Out))
	t := newTable("  disk", fmt.Sprintf("%s, of which %s were read and %s written", size(c.Size), size(c.Copied.Read), size(c.Copied.Written)))
	t.add("  manifest", plain(c.Manifest))
	t.add("  root", c.Root.String())
	if v := c.Verified; v != nil {
		if v.SHA256 != "" {
			t.add("  sha256", v.SHA256)
			t.add("  md5", v.MD5)
		}
		t.add("  verified", "all of it, read from "+v.Medium)
	} else {
		t.add("  verified", "no, as asked")
	}
	t.write(a.out)
	return nil
}
