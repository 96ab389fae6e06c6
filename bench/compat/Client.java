import java.io.InputStream;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import java.util.Arrays;
import java.util.stream.IntStream;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;

/** Asks by java.net.http, in HTTP/1.1 and HTTP/2: java Client.java URL CERT SITE */
public class Client {
    static SSLContext trust(String file) throws Exception {
        KeyStore store = KeyStore.getInstance(KeyStore.getDefaultType());
        store.load(null);
        try (InputStream pem = Files.newInputStream(Path.of(file))) {
            store.setCertificateEntry("proxy", CertificateFactory.getInstance("X.509").generateCertificate(pem));
        }
        TrustManagerFactory managers = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        managers.init(store);
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(null, managers.getTrustManagers(), null);
        return context;
    }

    static HttpRequest get(String url) {
        return HttpRequest.newBuilder(URI.create(url)).build();
    }

    static void same(HttpResponse<byte[]> answer, byte[] wanted) {
        if (answer.statusCode() != 200 || !Arrays.equals(answer.body(), wanted)) {
            throw new IllegalStateException(answer + " is not what was sent");
        }
    }

    public static void main(String[] args) throws Exception {
        byte[] page = Files.readAllBytes(Path.of(args[2], "index.html"));
        byte[] large = Files.readAllBytes(Path.of(args[2], "large"));
        StringBuilder spoken = new StringBuilder();
        for (HttpClient.Version version : HttpClient.Version.values()) {
            HttpClient client = HttpClient.newBuilder().version(version).sslContext(trust(args[1])).build();
            var handler = HttpResponse.BodyHandlers.ofByteArray();
            IntStream.range(0, 100)
                .mapToObj(i -> client.sendAsync(get(args[0] + "/"), handler))
                .toList()
                .forEach(answer -> same(answer.join(), page));
            HttpResponse<byte[]> answer = client.send(get(args[0] + "/large"), handler);
            same(answer, large);
            spoken.append(' ').append(answer.version());
        }
        System.out.println("Java " + Runtime.version().feature() + ":" + spoken + ", 200 pages and two megabytes");
        System.exit(0);
    }
}
