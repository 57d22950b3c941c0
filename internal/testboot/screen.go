package testboot

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"os"
	"slices"
	"strings"
)

// A screen is a picture of what the guest shows.
type screen struct{ *image.RGBA }

// The text screen of a PC: 80 by 25 characters at a fixed place in memory, each with its colours.
const (
	textAt   = 0xb8000
	textCols = 80
	textRows = 25
)

// errNoScreen is the error for an invalid picture.
var errNoScreen = errors.New("the screen's picture is no PPM")

// look takes a picture of the screen.
func (q *qemu) look(ctx context.Context) (screen, error) {
	const name = "screen.ppm"
	if err := q.monitor.do(ctx, "screendump", map[string]any{"filename": q.theirs + "/" + name}); err != nil {
		return screen{}, err
	}
	text, err := q.readBack(name, maxPicture)
	if err != nil {
		return screen{}, err
	}
	return parsePPM(text)
}

// maxPixels bounds a picture: no display adapter of QEMU's has more by itself.
const maxPixels = 8192 * 8192

// maxPicture is the size of the largest picture as a file, in bytes.
const maxPicture = 3*maxPixels + 64

// parsePPM reads a binary portable pixmap with 8 bits a colour.
func parsePPM(text []byte) (screen, error) {
	var w, h, most int
	n, err := fmt.Sscanf(string(text[:min(len(text), 64)]), "P6\n%d %d\n%d\n", &w, &h, &most)
	if err != nil || n != 3 || w <= 0 || h <= 0 || w > maxPixels/h || most != 255 || len(text) < 3*w*h {
		return screen{}, errNoScreen
	}
	img := image.NewRGBA(image.Rect(0, 0, w, h))
	for i, p := 0, text[len(text)-3*w*h:]; i < w*h; i++ {
		copy(img.Pix[4*i:], p[3*i:3*i+3])
		img.Pix[4*i+3] = 0xff
	}
	return screen{img}, nil
}

// isText reports whether a PC shows characters: the sizes of its text mode are no graphics mode's.
func (s screen) isText() bool {
	return s.Rect.Dy() == 400 && (s.Rect.Dx() == 720 || s.Rect.Dx() == 640)
}

// read returns the text of a text screen.
func (q *qemu) read(ctx context.Context) (string, error) {
	const name = "text"
	args := map[string]any{"val": textAt, "size": textRows * textCols * 2, "filename": q.theirs + "/" + name}
	if err := q.monitor.do(ctx, "pmemsave", args); err != nil {
		return "", err
	}
	cells, err := q.readBack(name, textRows*textCols*2)
	return parseText(cells), err
}

// parseText takes the characters of a text screen out of their colours.
func parseText(cells []byte) string {
	var b strings.Builder
	for row := range slices.Chunk(cells, 2*textCols) {
		line := make([]byte, 0, textCols)
		for i := 0; i < len(row); i += 2 {
			c := row[i]
			if c < ' ' || c > '~' {
				c = ' '
			}
			line = append(line, c)
		}
		b.Write(bytes.TrimRight(line, " "))
		b.WriteByte('\n')
	}
	return b.String()
}

// blues are the grounds of Windows' last screen: of 8 to 10, and of those before.
var blues = []color.RGBA{{0, 120, 215, 255}, {16, 114, 186, 255}, {0, 0, 170, 255}, {0, 0, 128, 255}, {0, 0, 130, 255}}

// isBlue reports whether most of the screen is of one of those, as no setup screen or desktop is that
// Windows shows on its way up.
func (s screen) isBlue() bool {
	near := func(a, b uint8) bool { return max(a, b)-min(a, b) <= 4 }
	size := s.Rect.Dx() * s.Rect.Dy()
	for _, blue := range blues {
		n := 0
		for i := 0; i < len(s.Pix); i += 4 {
			if near(s.Pix[i], blue.R) && near(s.Pix[i+1], blue.G) && near(s.Pix[i+2], blue.B) {
				n++
			}
		}
		if n > size*7/10 {
			return true
		}
	}
	return false
}

// save writes the picture as PNG.
func (s screen) save(path string) error {
	var b bytes.Buffer
	if err := png.Encode(&b, s); err != nil {
		return err
	}
	return os.WriteFile(path, b.Bytes(), 0o644)
}
