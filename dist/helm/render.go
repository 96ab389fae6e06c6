// Renders the chart with Go's own text/template, which is what helm uses, and the few functions
// that the chart uses. There is no helm in Debian. `dist/helm/check` runs it.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"
)

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// render.go CHART VALUES.json RELEASE NAMESPACE [TEMPLATE...]
func main() {
	text, err := os.ReadFile(os.Args[2])
	fail(err)
	var values map[string]interface{}
	decoder := json.NewDecoder(strings.NewReader(string(text)))
	decoder.UseNumber()
	fail(decoder.Decode(&values))
	functions := template.FuncMap{
		"quote": func(it interface{}) string { return fmt.Sprintf("%q", fmt.Sprint(it)) },
		"int": func(it interface{}) (int, error) {
			var number int
			_, err := fmt.Sscan(fmt.Sprint(it), &number)
			return number, err
		},
		"until": func(end int) []int {
			numbers := make([]int, end)
			for index := range numbers {
				numbers[index] = index
			}
			return numbers
		},
	}
	data := map[string]interface{}{
		"Values":  values,
		"Release": map[string]string{"Name": os.Args[3], "Namespace": os.Args[4]},
		"Chart":   map[string]string{"AppVersion": "0.2.0"},
	}
	for _, name := range os.Args[5:] {
		path := filepath.Join(os.Args[1], "templates", name)
		text, err := os.ReadFile(path)
		fail(err)
		parsed, err := template.New(name).Option("missingkey=error").Funcs(functions).Parse(string(text))
		fail(err)
		fail(parsed.Execute(os.Stdout, data))
	}
}
