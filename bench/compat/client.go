// Asks by Go's net/http, on connections that are kept, in HTTP/1.1 and HTTP/2: client URL CERT SITE
package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime"
	"sync"
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func get(client *http.Client, url string) ([]byte, string) {
	answer, err := client.Get(url)
	check(err)
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	check(err)
	if answer.StatusCode != 200 {
		check(fmt.Errorf("%s: %s", url, answer.Status))
	}
	return body, answer.Proto
}

func main() {
	url, site := os.Args[1], os.Args[3]
	page, err := os.ReadFile(site + "/index.html")
	check(err)
	large, err := os.ReadFile(site + "/large")
	check(err)
	pem, err := os.ReadFile(os.Args[2])
	check(err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	var spoken string
	for _, second := range []bool{false, true} {
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: second}
		client := &http.Client{Transport: transport}
		var all sync.WaitGroup
		for worker := 0; worker < 4; worker++ {
			all.Add(1)
			go func() {
				defer all.Done()
				for i := 0; i < 25; i++ {
					body, _ := get(client, url+"/")
					if !bytes.Equal(body, page) {
						check(fmt.Errorf("another page: %q", body))
					}
				}
			}()
		}
		all.Wait()
		body, proto := get(client, url+"/large")
		if !bytes.Equal(body, large) {
			check(fmt.Errorf("the megabyte is not the one that was sent"))
		}
		spoken += " " + proto
		transport.CloseIdleConnections()
	}
	fmt.Printf("%s:%s, 200 pages and two megabytes\n", runtime.Version(), spoken)
}
