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

// A screen is a picture of the guest's display.
type screen struct{ *image.RGBA }

// The text screen of a PC: 80 by 25 characters at a fixed place in memory, each with
// its colours.
const (
	textAt   = 0xb8000 // physical address of a PC's text screen
	textCols = 80      // characters per line
	textRows = 25      // number of lines
)

// errNoScreen is the error for an invalid picture.
var errNoScreen = errors.New("the screenshot is not a PPM file")

// takePicture returns a picture of the display.
func (q *qemu) takePicture(ctx context.Context) (screen, error) {
	const name = "screen.ppm"
	if err := q.monitor.execute(ctx, "screendump", map[string]any{"filename": q.theirs + "/" + name}); err != nil {
		return screen{}, err
	}
	text, err := q.readBack(name, maxPicture)
	if err != nil {
		return screen{}, err
	}
	return parsePPM(text)
}

// maxPixels limits the size of a picture. No display adapter of QEMU has more by
// default.
const maxPixels = 8192 * 8192

// maxPicture is the size of the largest picture file, in bytes.
const maxPicture = 3*maxPixels + 64

// parsePPM parses a binary portable pixmap with 8 bits per color.
func parsePPM(text []byte) (screen, error) {
	var w, h, most int
	// The header is shorter than 64 bytes. The limits below bound the allocation.
	n, err := fmt.Sscanf(string(text[:min(len(text), 64)]), "P6\n%d %d\n%d\n", &w, &h, &most)
	if err != nil || n != 3 || w <= 0 || h <= 0 || w > maxPixels/h || most != 255 || len(text) < 3*w*h {
		return screen{}, errNoScreen
	}
	// The size was checked against maxPixels and against the length of the text.
	img := image.NewRGBA(image.Rect(0, 0, w, h))
	for i, p := 0, text[len(text)-3*w*h:]; i < w*h; i++ {
		copy(img.Pix[4*i:], p[3*i:3*i+3])
		img.Pix[4*i+3] = 0xff
	}
	return screen{img}, nil
}

// isText reports whether the display is in text mode, by its size. No graphics mode has
// the same size.
func (s screen) isText() bool {
	return s.Rect.Dy() == 400 && (s.Rect.Dx() == 720 || s.Rect.Dx() == 640)
}

// readText returns the characters of the text screen.
func (q *qemu) readText(ctx context.Context) (string, error) {
	const name = "text"
	args := map[string]any{"val": textAt, "size": textRows * textCols * 2, "filename": q.theirs + "/" + name}
	if err := q.monitor.execute(ctx, "pmemsave", args); err != nil {
		return "", err
	}
	cells, err := q.readBack(name, textRows*textCols*2)
	return parseText(cells), err
}

// parseText returns the characters of a text screen without their colors. Each cell has
// two bytes: character and color.
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

// blueScreens contains the background colors of Windows' stop screens: of Windows 8 to
// 10, and of earlier versions.
var blueScreens = []color.RGBA{{0, 120, 215, 255}, {16, 114, 186, 255}, {0, 0, 170, 255}, {0, 0, 128, 255}, {0, 0, 130, 255}}

// isBlue reports whether more than 70 % of the display have one of these colors. No
// setup screen or desktop during the boot of Windows does.
func (s screen) isBlue() bool {
	// Display adapters round colors differently.
	near := func(a, b uint8) bool { return max(a, b)-min(a, b) <= 4 }
	size := s.Rect.Dx() * s.Rect.Dy()
	for _, blue := range blueScreens {
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

// savePNG writes the picture as PNG.
func (s screen) savePNG(path string) error {
	var b bytes.Buffer
	if err := png.Encode(&b, s); err != nil {
		return err
	}
	return os.WriteFile(path, b.Bytes(), 0o644)
}
