package testboot

import (
	"bytes"
	"fmt"
	"image/color"
	"strings"
	"testing"
)

// newPPM returns a picture of w by h pixels. The first n pixels have color c, the rest are white.
func newPPM(w, h, n int, c color.RGBA) []byte {
	b := fmt.Appendf(nil, "P6\n%d %d\n255\n", w, h)
	for i := range w * h {
		if i < n {
			b = append(b, c.R, c.G, c.B)
		} else {
			b = append(b, 255, 255, 255)
		}
	}
	return b
}

func TestBlueScreens(t *testing.T) {
	for _, c := range []struct {
		part int // percentage of pixels with color c
		c    color.RGBA
		want bool
	}{
		{90, color.RGBA{0, 120, 215, 255}, true},
		{90, color.RGBA{0, 0, 128, 255}, true},
		{60, color.RGBA{0, 120, 215, 255}, false}, // a desktop
		{100, color.RGBA{0, 0, 0, 255}, false},
		{0, color.RGBA{}, false},
	} {
		s, err := parsePPM(newPPM(64, 48, 64*48*c.part/100, c.c))
		if err != nil || s.isBlue() != c.want {
			t.Errorf("%d %% of %v: %v, %v", c.part, c.c, s.isBlue(), err)
		}
	}
}

func TestTextOfScreens(t *testing.T) {
	cells := bytes.Repeat([]byte{' ', 7}, textCols*textRows)
	for i, c := range []byte("No bootable device.\xb0\x00") {
		cells[2*(textCols*2+i)] = c
	}
	text := parseText(cells)
	if lines := strings.Split(text, "\n"); len(lines) != textRows+1 || lines[2] != "No bootable device." {
		t.Errorf("text %q", text)
	}
	for size, want := range map[[2]int]bool{{720, 400}: true, {640, 400}: true, {1024, 768}: false, {640, 480}: false} {
		s, err := parsePPM(newPPM(size[0], size[1], 0, color.RGBA{}))
		if err != nil || s.isText() != want {
			t.Errorf("size %v: isText is %v, want %v, error %v", size, s.isText(), want, err)
		}
	}
}

func FuzzPPM(f *testing.F) {
	f.Add(newPPM(4, 3, 5, color.RGBA{}))
	f.Add([]byte("P6\n99999 99999\n255\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if s, err := parsePPM(text); err == nil && len(s.Pix) != 4*s.Rect.Dx()*s.Rect.Dy() {
			t.Error("the size of the picture does not match its pixels")
		}
		parseText(text)
	})
}
