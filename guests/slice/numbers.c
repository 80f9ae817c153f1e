/* Numbers with a point: SSE, x87, the mathematics library called through stubs that are bound late. flags: -Wl,-z,lazy -fno-builtin-sqrt -Wl,--no-as-needed -lm */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static double matrix[6][6], inverse[6][6];

static double horner(const double *c, int n, double x) {
    double y = 0;
    for (int i = 0; i < n; i++)
        y = y * x + c[i];
    return y;
}

static float single(float *list, int n) {
    float best = list[0], all = 0;
    for (int i = 0; i < n; i++) {
        best = list[i] > best ? list[i] : best;
        all += fabsf(list[i]);
    }
    return best / all;
}

static long double wide(int n) {
    long double product = 1;
    for (int i = 1; i < n; i++)
        product = product * (i + 0.25L) / (i + 1);
    return product;
}

int main(int count, char **words) {
    double seed = count * 0.37;
    for (int i = 0; i < 6; i++)
        for (int j = 0; j < 6; j++) {
            matrix[i][j] = sin(seed + i * 6 + j) + (i == j) * 3;
            inverse[i][j] = i == j;
        }
    for (int p = 0; p < 6; p++) {
        double scale = 1 / matrix[p][p];
        for (int j = 0; j < 6; j++) {
            matrix[p][j] *= scale;
            inverse[p][j] *= scale;
        }
        for (int i = 0; i < 6; i++) {
            double factor = matrix[i][p];
            if (i != p)
                for (int j = 0; j < 6; j++) {
                    matrix[i][j] -= factor * matrix[p][j];
                    inverse[i][j] -= factor * inverse[p][j];
                }
        }
    }
    double root = sqrt(inverse[2][3] * inverse[2][3] + 2), power = pow(root, 1.5);
    float list[10];
    for (int i = 0; i < 10; i++)
        list[i] = (float)inverse[i % 6][(i * 5) % 6] * (i + 1);
    long rounded = lrint(power * 1000) + (int)(root * 7);
    unsigned long big = (unsigned long)(power * 1e18);
    printf("%.6f %.6f %g %.8Lf\n", root, power, single(list, 10), wide(12));
    printf("%ld %lu %.3e %.4f\n", rounded, big, horner(inverse[0], 6, root), strtod("2.5", 0) * exp(-root));
    return 0;
}
