package nfc

import "time"

// testStall is longer than a loaded machine takes for anything a test waits for.
const testStall = 30 * time.Second
