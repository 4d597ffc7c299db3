import com.google.re2j.Pattern;
import com.google.re2j.PatternSyntaxException;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Base64;

/** For each line "pattern name name ..." in base64: "-" if Kafka refuses the pattern, else a 0 or 1 for each name. */
public class Patterns {
    public static void main(String[] args) throws Exception {
        var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        var answers = new StringBuilder();
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            try {
                Pattern pattern = Pattern.compile(decoded(words[0]));
                for (int i = 1; i < words.length; i++)
                    answers.append(pattern.matcher(decoded(words[i])).matches() ? '1' : '0');
            } catch (PatternSyntaxException refused) {
                answers.append('-');
            }
            answers.append('\n');
        }
        System.out.print(answers);
    }

    private static String decoded(String word) {
        return new String(Base64.getDecoder().decode(word), StandardCharsets.UTF_8);
    }
}
